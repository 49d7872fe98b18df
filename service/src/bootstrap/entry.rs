//! The text that each rank publishes in a launcher's key-value space.

use std::fmt;
use std::str::FromStr;

use samite_control::Secret;
use samite_os::process::{Place, Process};

/// The facts that one rank publishes, as a text of hexadecimal digits, dots and dashes, which every launcher can
/// carry: `size.secret.boot.namespace.pid.start.address`, with dashes for missing parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The number of ranks, as this rank knows it.
    pub(crate) size: u32,
    /// The job's secret, which rank 0 makes.
    pub(crate) secret: Option<Secret>,
    /// The rank's process. Ranks on the same host and in the same pid namespace use it to notice the rank's end.
    pub(crate) process: Option<(Place, Process)>,
    /// The address of the rank's ports.
    pub(crate) address: Vec<u8>,
}

/// The error of a text that is not a valid entry.
#[derive(Debug)]
pub(crate) struct NoEntry;

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.", self.size)?;
        match &self.secret {
            Some(Secret(bytes)) => write!(f, "{:032x}", u128::from_be_bytes(*bytes))?,
            None => write!(f, "-")?,
        }
        match &self.process {
            Some((place, process)) => write!(
                f,
                ".{:x}.{:x}.{:x}.{:x}.",
                u128::from_be_bytes(place.boot),
                place.pid_namespace,
                process.pid,
                process.start
            )?,
            None => write!(f, ".-.-.-.-.")?,
        }
        self.address.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Entry {
    type Err = NoEntry;

    fn from_str(text: &str) -> Result<Entry, NoEntry> {
        let fields: Vec<&str> = text.split('.').collect();
        let &[size, secret, boot, pid_namespace, pid, start, address] = &fields[..] else {
            return Err(NoEntry);
        };
        let number = |digits| u64::from_str_radix(digits, 16).map_err(|_| NoEntry);
        let narrow = |digits| u32::from_str_radix(digits, 16).map_err(|_| NoEntry);
        let bytes = |digits| u128::from_str_radix(digits, 16).map(u128::to_be_bytes).map_err(|_| NoEntry);
        let process = match boot {
            "-" => None,
            boot => Some((
                Place { boot: bytes(boot)?, pid_namespace: number(pid_namespace)? },
                Process { pid: narrow(pid)?, start: number(start)? },
            )),
        };
        Ok(Entry {
            size: narrow(size)?,
            secret: (secret != "-").then(|| bytes(secret).map(Secret)).transpose()?,
            process,
            address: unhex(address).ok_or(NoEntry)?,
        })
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    digits.as_bytes().chunks(2).map(|pair| Some((digit(&pair[0])? << 4 | digit(&pair[1])?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let place = Place { boot: [0xab; 16], pid_namespace: 4_026_531_836 };
        Entry {
            size: 64,
            secret: Some(Secret([0x0c; 16])),
            process: Some((place, Process { pid: 77, start: 123_456 })),
            address: vec![0, 1, 0xff],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bare = Entry { size: 1, secret: None, process: None, address: Vec::new() };
        for entry in [entry(), bare] {
            let text = entry.to_string();
            assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit() || b".-".contains(&byte)), "{text}");
            assert_eq!(text.parse::<Entry>().unwrap(), entry);
        }
    }

    #[test]
    fn anything_else_is_no_entry() {
        let whole = entry().to_string();
        let nonsense = [
            "",
            "unknown",
            "1.-.-.-.-.-.0",
            "1.-.-.-.-.-.0g",
            "1.-.-.-.-.-.é",
            "-.-.-.-.-.-.",
            "1.x.-.-.-.-.",
        ];
        for text in
            nonsense.map(str::to_owned).into_iter().chain([format!("{whole}.0"), whole[1..].replace('.', "")])
        {
            assert!(text.parse::<Entry>().is_err(), "{text}");
        }
    }
}
