//! The two notations of PMI for a command and its answer.
//!
//! ```text
//! PMI-1   cmd=put kvsname=kvs_0 key=samite-1-0 value=…\n
//! PMI-2   "    43" cmd=kvs-put;key=samite-1-0;value=…;       the length as six characters, with spaces before or after
//! ```
//! (Hydra's `src/pm/hydra/pm/pmiserv`, Slurm's `src/plugins/mpi/pmi2`.) The words of an answer are read by key, since
//! launchers differ in the order of the words and in optional words.

use super::PmiError;

/// A version of the protocol between a process and its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// PMI-1.1.
    One,
    /// PMI-2.0.
    Two,
}

/// A command or an answer: `cmd` and its other words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words(Vec<(String, String)>);

impl Words {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn command(&self) -> &str {
        self.get("cmd").unwrap_or("")
    }
}

impl Wire {
    /// Encodes a command. No word may contain a separator: values are [`Entry`](super::super::entry::Entry)s and
    /// numbers.
    pub(super) fn encode(self, command: &str, words: &[(&str, &str)]) -> Vec<u8> {
        let words = std::iter::once(("cmd", command)).chain(words.iter().copied());
        match self {
            Wire::One => {
                let words: Vec<_> = words.map(|(key, value)| format!("{key}={value}")).collect();
                (words.join(" ") + "\n").into_bytes()
            }
            Wire::Two => {
                let words: String = words.map(|(key, value)| format!("{key}={value};")).collect();
                format!("{:6}{words}", words.len()).into_bytes()
            }
        }
    }

    /// Returns the first message of `bytes` and its length; `None` if it is not complete yet.
    pub(super) fn decode(self, bytes: &[u8]) -> Result<Option<(Words, usize)>, PmiError> {
        let malformed = |text: &[u8]| PmiError::Malformed(String::from_utf8_lossy(text).into_owned());
        let (text, end) = match self {
            Wire::One => match bytes.iter().position(|&byte| byte == b'\n') {
                Some(length) => (&bytes[..length], length + 1),
                None if bytes.len() > LINE_BYTES_MAX => return Err(malformed(&bytes[..80])),
                None => return Ok(None),
            },
            Wire::Two => {
                let Some(digits) = bytes.get(..LENGTH_DIGITS) else { return Ok(None) };
                let length = std::str::from_utf8(digits).ok().and_then(|digits| digits.trim().parse().ok());
                let length: usize = length.ok_or_else(|| malformed(digits))?;
                match bytes.get(LENGTH_DIGITS..LENGTH_DIGITS + length) {
                    Some(text) => (text, LENGTH_DIGITS + length),
                    None => return Ok(None),
                }
            }
        };
        let words = std::str::from_utf8(text).map_err(|_| malformed(text))?;
        let separator = if self == Wire::One { ' ' } else { ';' };
        // A word without `=` is a part of a message with spaces in it.
        let words = words.split(separator).filter_map(|word| word.split_once('='));
        let words = words.map(|(key, value)| (key.trim().to_owned(), value.to_owned()));
        Ok(Some((Words(words.collect()), end)))
    }
}

const LENGTH_DIGITS: usize = 6;

/// The longest accepted answer of PMI-1: values have at most some KiB.
const LINE_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for wire in [Wire::One, Wire::Two] {
            let text = wire.encode("put", &[("key", "a-1"), ("value", "(vector,(0,1,4))")]);
            for cut in 0..text.len() {
                assert_eq!(wire.decode(&text[..cut]).unwrap(), None, "{wire:?} {cut}");
            }
            let (words, length) = wire.decode(&[&text[..], b"more"].concat()).unwrap().unwrap();
            assert_eq!((words.command(), words.get("key"), length), ("put", Some("a-1"), text.len()));
            assert_eq!(words.get("value"), Some("(vector,(0,1,4))"));
            assert_eq!(words.get("rc"), None);
        }
    }

    #[test]
    fn lengths_stand_on_either_side() {
        for text in ["    11cmd=x;rc=0;", "11    cmd=x;rc=0;"] {
            assert_eq!(Wire::Two.decode(text.as_bytes()).unwrap().unwrap().0.get("rc"), Some("0"));
        }
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic() {
        for text in [&b"-1    cmd=x;"[..], b"abcdef", b"\xff\xff\xff\xff\xff\xff", b"     4\xff\xff\xff\xff"]
        {
            assert!(matches!(Wire::Two.decode(text), Err(PmiError::Malformed(_))), "{text:?}");
        }
        assert!(matches!(Wire::One.decode(b"cmd=\xff\n"), Err(PmiError::Malformed(_))));
        assert!(matches!(Wire::One.decode(&[b'a'; LINE_BYTES_MAX + 1]), Err(PmiError::Malformed(_))));
        assert_eq!(Wire::One.decode(b"no word\n").unwrap().unwrap().0.command(), "");
    }
}
