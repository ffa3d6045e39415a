//! Reading one file, whatever is behind its name: never blocks, never takes more than the limit.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The largest file that is read as text. A thousand services take about 300 kB.
pub const TEXT_MAX: u64 = 8 << 20;

/// Why a file could not be had as text. `Display` is a sentence without the path.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Not there.
    #[error("the file does not exist")]
    Missing,
    /// A symlink that leads nowhere.
    #[error("the symlink leads to a file that does not exist")]
    Dangling,
    /// A FIFO, a device, a directory.
    #[error("this is {0}, not a regular file")]
    Kind(&'static str),
    /// Larger than [`TEXT_MAX`].
    #[error("the file has {0} bytes; at most {TEXT_MAX} are read")]
    TooLarge(u64),
    /// Not UTF-8.
    #[error("byte 0x{byte:02X} is not valid UTF-8")]
    NotUtf8 {
        /// The byte.
        byte: u8,
        /// Its line.
        line: u32,
        /// Its column.
        column: u32,
        /// What is valid of its line.
        text: String,
    },
    /// Holds a NUL.
    #[error("there is a NUL byte in the text")]
    Nul {
        /// Its line.
        line: u32,
        /// Its column.
        column: u32,
        /// What comes before it on its line.
        text: String,
    },
    /// The system said no.
    #[error("the file cannot be read: {}", reason(.0))]
    Io(std::io::Error),
}

/// What the system said, in its own words but for the ones that puzzle.
fn reason(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ELOOP) => "its symlinks lead round in a circle".to_owned(),
        Some(libc::EACCES | libc::EPERM) => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

impl Fault {
    /// The place inside the file, where there is one.
    pub fn place(&self) -> (u32, u32) {
        match self {
            Self::NotUtf8 { line, column, .. } | Self::Nul { line, column, .. } => (*line, *column),
            _ => (1, 1),
        }
    }

    /// The line at that place.
    pub fn source_line(&self) -> Option<String> {
        match self {
            Self::NotUtf8 { text, .. } | Self::Nul { text, .. } => Some(text.clone()),
            _ => None,
        }
    }

    /// What to do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotUtf8 { .. } => Some("save the file as UTF-8; it looks like Latin-1"),
            Self::TooLarge(_) => Some("a Compose file is small; is this another kind of file?"),
            _ => None,
        }
    }
}

/// Opens a regular file without waiting for anybody at its other end.
pub fn open(path: &Path) -> Result<File, Fault> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
        match error.kind() {
            std::io::ErrorKind::NotFound if std::fs::symlink_metadata(path).is_ok() => Fault::Dangling,
            std::io::ErrorKind::NotFound => Fault::Missing,
            // A socket cannot be opened at all.
            _ if error.raw_os_error() == Some(libc::ENXIO) => Fault::Kind("a socket"),
            _ => Fault::Io(error),
        }
    })?;
    let kind = file.metadata().map_err(Fault::Io)?.file_type();
    let odd = [
        (kind.is_dir(), "a directory"),
        (kind.is_fifo(), "a FIFO"),
        (kind.is_block_device() || kind.is_char_device(), "a device"),
        (kind.is_socket(), "a socket"),
    ];
    match odd.iter().find(|(is, _)| *is) {
        Some((_, what)) => Err(Fault::Kind(what)),
        None => Ok(file),
    }
}

/// The text of a file.
pub fn text(path: &Path) -> Result<String, Fault> {
    let file = open(path)?;
    let size = file.metadata().map_err(Fault::Io)?.len();
    if size > TEXT_MAX {
        return Err(Fault::TooLarge(size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // The file may grow while it is read; the limit holds all the same.
    file.take(TEXT_MAX + 1).read_to_end(&mut bytes).map_err(Fault::Io)?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Fault::TooLarge(bytes.len() as u64));
    }
    decode(bytes)
}

/// Bytes as text: UTF-8 without NUL.
pub fn decode(bytes: Vec<u8>) -> Result<String, Fault> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let byte = bytes.get(at).copied().unwrap_or(0);
        let (line, column, text) = place_of(&String::from_utf8_lossy(&bytes[..at]));
        Fault::NotUtf8 { byte, line, column, text }
    })?;
    match text.find('\0') {
        None => Ok(text),
        Some(at) => {
            let (line, column, text) = place_of(&text[..at]);
            Err(Fault::Nul { line, column, text })
        }
    }
}

/// The place just after a text.
fn place_of(before: &str) -> (u32, u32, String) {
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or("");
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    (number(line), number(last.chars().count() + 1), last.to_owned())
}
