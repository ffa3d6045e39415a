//! Reading files of a container's root filesystem through the directories of its snapshot, without mounting it.
//!
//! An overlay's rules are followed: upper layers hide lower ones, whiteouts remove, opaque directories cut off. Links
//! are resolved inside the root. A directory that turns into a link meanwhile is not followed.

use containerd_client::types::Mount;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Links followed in one look-up, as the kernel has it.
const LINKS: usize = 40;

/// The layers of a root filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFs {
    /// Their directories, the uppermost first.
    layers: Vec<PathBuf>,
}

enum Found {
    Directory(Vec<PathBuf>),
    Link(PathBuf),
    File(PathBuf),
}

impl RootFs {
    /// From the mounts of a snapshot: an overlay, or a bind mount where there is only one layer.
    pub fn from_mounts(mounts: &[Mount]) -> Self {
        let mut layers = Vec::new();
        for mount in mounts {
            if mount.r#type != "overlay" {
                layers.insert(0, PathBuf::from(&mount.source));
                continue;
            }
            let option = |name| mount.options.iter().find_map(|option| option.strip_prefix(name));
            layers.extend(option("upperdir=").map(PathBuf::from));
            layers.extend(option("lowerdir=").into_iter().flat_map(|dirs| dirs.split(':')).map(PathBuf::from));
        }
        Self { layers }
    }

    /// A file's content up to `limit` bytes; `None` where there is no such regular file.
    pub fn read(&self, path: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        match self.find(path)? {
            Some((layer, path)) => open(&layer, &path, limit),
            None => Ok(None),
        }
    }

    /// Whether there is such a file that is no directory.
    pub fn has(&self, path: &str) -> io::Result<bool> {
        Ok(self.find(path)?.is_some())
    }

    /// The layer that a file is in, and where in it.
    fn find(&self, path: &str) -> io::Result<Option<(PathBuf, String)>> {
        let mut todo: VecDeque<String> = components(path).collect();
        let mut done: Vec<String> = Vec::new();
        let mut links = 0;
        let mut visible = self.layers.clone();
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                done.pop();
                visible = self.visible(&done)?;
                continue;
            }
            match step(&visible, &done, &name)? {
                None => return Ok(None),
                Some(Found::Directory(layers)) => {
                    visible = layers;
                    done.push(name);
                }
                Some(Found::Link(target)) => {
                    links += 1;
                    if links > LINKS {
                        return Ok(None);
                    }
                    let target = target.to_string_lossy().into_owned();
                    if target.starts_with('/') {
                        done.clear();
                        visible.clone_from(&self.layers);
                    }
                    for part in components(&target).collect::<Vec<_>>().into_iter().rev() {
                        todo.push_front(part);
                    }
                }
                Some(Found::File(layer)) if todo.is_empty() => {
                    done.push(name);
                    return Ok(Some((layer, done.join("/"))));
                }
                Some(Found::File(_)) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The layers in which a directory that was walked to before is visible.
    fn visible(&self, path: &[String]) -> io::Result<Vec<PathBuf>> {
        let mut visible = self.layers.clone();
        for (depth, name) in path.iter().enumerate() {
            match step(&visible, &path[..depth], name)? {
                Some(Found::Directory(layers)) => visible = layers,
                _ => return Ok(Vec::new()),
            }
        }
        Ok(visible)
    }
}

fn components(path: &str) -> impl Iterator<Item = String> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned)
}

/// Looks for one name in a directory that is visible in these layers.
fn step(layers: &[PathBuf], directory: &[String], name: &str) -> io::Result<Option<Found>> {
    let mut directories = Vec::new();
    for layer in layers {
        let path = layer.join(directory.join("/")).join(name);
        let meta = match std::fs::symlink_metadata(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            other => other?,
        };
        let kind = meta.file_type();
        let whiteout = kind.is_char_device() && meta.rdev() == 0;
        if whiteout {
            break;
        }
        if kind.is_dir() {
            directories.push(layer.clone());
            if is_opaque(&path) {
                break;
            }
            continue;
        }
        if !directories.is_empty() {
            break; // hidden below a directory
        }
        return Ok(Some(match kind.is_symlink() {
            true => Found::Link(std::fs::read_link(&path)?),
            false => Found::File(layer.clone()),
        }));
    }
    Ok((!directories.is_empty()).then_some(Found::Directory(directories)))
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0_u8; 8];
    ["trusted.overlay.opaque", "user.overlay.opaque"].iter().any(|name| {
        let answer: Result<usize, _> = rustix::fs::lgetxattr(path, *name, &mut value);
        answer.is_ok_and(|length| value.get(..length) == Some(b"y".as_slice()))
    })
}

fn open(layer: &Path, path: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let root = rustix::fs::open(layer, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let fd = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?;
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    File::from(fd).take(limit).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn overlay(layers: &[&Path]) -> RootFs {
        RootFs { layers: layers.iter().map(|layer| layer.to_path_buf()).collect() }
    }

    fn read(root: &RootFs, path: &str) -> Option<String> {
        root.read(path, 1024).expect("reads").map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    fn write(layer: &Path, path: &str, text: &str) {
        let path = layer.join(path);
        fs::create_dir_all(path.parent().expect("has one")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn upper_layers_hide_lower_ones_and_whiteouts_remove() {
        let (upper, lower) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(lower.path(), "etc/passwd", "lower");
        write(lower.path(), "etc/group", "group");
        write(lower.path(), "gone/file", "gone");
        let root = overlay(&[upper.path(), lower.path()]);
        assert_eq!(read(&root, "/etc/passwd").as_deref(), Some("lower"));
        write(upper.path(), "etc/passwd", "upper");
        assert_eq!(read(&root, "/etc/passwd").as_deref(), Some("upper"));
        assert_eq!(read(&root, "/etc/group").as_deref(), Some("group"));
        nix::sys::stat::mknod(
            &upper.path().join("gone"),
            nix::sys::stat::SFlag::S_IFCHR,
            nix::sys::stat::Mode::empty(),
            0,
        )
        .expect("a whiteout");
        assert_eq!(read(&root, "/gone/file"), None);
        assert_eq!(read(&root, "/etc"), None, "a directory is no file");
    }

    #[test]
    fn links_stay_inside_the_root_and_end() {
        let layer = tempfile::tempdir().unwrap();
        write(layer.path(), "real/passwd", "inside");
        fs::create_dir_all(layer.path().join("etc")).unwrap();
        symlink("/../../real/passwd", layer.path().join("etc/passwd")).unwrap();
        symlink("../real", layer.path().join("etc/up")).unwrap();
        symlink("loop", layer.path().join("loop")).unwrap();
        let root = overlay(&[layer.path()]);
        assert_eq!(read(&root, "/etc/passwd").as_deref(), Some("inside"));
        assert_eq!(read(&root, "/etc/up/../real/./passwd").as_deref(), Some("inside"));
        assert_eq!(read(&root, "/loop"), None);
    }

    #[test]
    fn mounts_of_a_snapshot_give_the_layers_in_order() {
        let overlay = Mount {
            r#type: "overlay".to_owned(),
            options: vec!["workdir=/w".into(), "upperdir=/u".into(), "lowerdir=/a:/b".into()],
            ..Mount::default()
        };
        let layers = ["/u", "/a", "/b"].map(PathBuf::from).to_vec();
        assert_eq!(RootFs::from_mounts(&[overlay]), RootFs { layers });
        let bind = Mount { r#type: "bind".to_owned(), source: "/s".to_owned(), ..Mount::default() };
        assert_eq!(RootFs::from_mounts(&[bind]), RootFs { layers: vec![PathBuf::from("/s")] });
    }
}
