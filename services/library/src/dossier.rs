//! The worked example's dossier about the fictional Company X, inside the program, so that it can
//! be loaded anywhere. The files are those of `seed-config/dossier`, but for its README.

include!(concat!(env!("OUT_DIR"), "/dossier.rs"));

/// The collection the dossier is loaded into unless someone says otherwise.
pub const COLLECTION: &str = "dossier";

/// Paths and bytes, in the order of the paths; made for [`crate::Library::load_memory`].
pub fn files() -> &'static [(&'static str, &'static [u8])] {
    FILES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_says_that_it_is_fictional() {
        assert!(files().len() >= 8);
        for (path, bytes) in files() {
            let text = String::from_utf8_lossy(bytes);
            let head: String = text.chars().take(400).collect();
            assert!(head.to_lowercase().contains("fictional"), "{path}");
            assert!(!path.contains("README"), "{path}");
        }
    }
}
