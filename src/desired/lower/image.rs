//! Image references, as containerd names them.

/// A reference in full: registry, path, tag or digest. The error is a sentence.
pub fn normalise(text: &str) -> Result<String, String> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    let (name, tag) = match rest.rsplit_once(':') {
        // A colon before a slash is a registry's port.
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    let (registry, path) = match name.split_once('/') {
        Some((first, path)) if first.contains(['.', ':']) || first == "localhost" => (first, path.to_owned()),
        _ => ("docker.io", name.to_owned()),
    };
    let registry = if registry == "index.docker.io" { "docker.io" } else { registry };
    let path = if registry == "docker.io" && !path.contains('/') { format!("library/{path}") } else { path };
    check_path(text, &path)?;
    if !registry.chars().all(|c| c.is_ascii_alphanumeric() || ".:-[]".contains(c)) {
        return Err(format!("\"{registry}\" is not a registry's address"));
    }
    if let Some(tag) = tag {
        let first = tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if !first || tag.len() > 128 || !tag.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)) {
            return Err(format!("\"{tag}\" is not a tag"));
        }
    }
    if let Some(digest) = digest {
        let good = digest.split_once(':').is_some_and(|(algorithm, hex)| {
            !algorithm.is_empty() && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
        });
        if !good {
            return Err(format!("\"{digest}\" is not a digest"));
        }
    }
    Ok(match (tag, digest) {
        (None, None) => format!("{registry}/{path}:latest"),
        (Some(tag), None) => format!("{registry}/{path}:{tag}"),
        (None, Some(digest)) => format!("{registry}/{path}@{digest}"),
        (Some(tag), Some(digest)) => format!("{registry}/{path}:{tag}@{digest}"),
    })
}

fn check_path(text: &str, path: &str) -> Result<(), String> {
    if text.chars().any(|c| c.is_ascii_uppercase()) && path.chars().any(|c| c.is_ascii_uppercase()) {
        return Err(format!("\"{text}\" is not an image reference: a repository is written in lower case"));
    }
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
    };
    if path.is_empty() || path.len() > 255 || !path.split('/').all(part) {
        return Err(format!("\"{text}\" is not an image reference"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::normalise;

    #[test]
    fn references_are_written_in_full() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (short, full) in [
            ("web", "docker.io/library/web:latest"),
            ("team/web:1", "docker.io/team/web:1"),
            ("ghcr.io/a/b", "ghcr.io/a/b:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a:2", "localhost:5000/a:2"),
            ("index.docker.io/library/web:1", "docker.io/library/web:1"),
        ] {
            assert_eq!(normalise(short).as_deref(), Ok(full));
        }
        assert_eq!(normalise(&format!("web@{digest}")), Ok(format!("docker.io/library/web@{digest}")));
        assert_eq!(normalise(&format!("a/web:1@{digest}")), Ok(format!("docker.io/a/web:1@{digest}")));
        for bad in ["", "Web", "a//b", "web:", "web:-x", "web@sha256:1", "a b", ":1", "-a", "a/-b"] {
            assert!(normalise(bad).is_err(), "{bad}");
        }
    }
}
