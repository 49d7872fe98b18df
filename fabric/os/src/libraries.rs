//! The shared libraries of this process.

/// Returns true if the shared library `name` is loaded (the name of the library's file, without folder and version).
pub fn is_loaded(name: &str) -> bool {
    let Ok(mappings) = std::fs::read_to_string("/proc/self/maps") else { return false };
    mappings.lines().any(|mapping| {
        let file = mapping.rsplit('/').next().unwrap_or_default();
        file.strip_prefix(name).is_some_and(|rest| rest.starts_with(".so"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_loaded() {
        assert!(is_loaded("libc"));
        assert!(!is_loaded("lib") && !is_loaded("libnone"));
    }
}
