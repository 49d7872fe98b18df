//! The hosts of a job, and the distribution of ranks over them.

use std::ops::Range;
use std::str::FromStr;

use super::LaunchError;

/// A host of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The name for the remote shell: `node7`, `user@node7`, an address.
    pub name: String,
    /// The largest number of ranks on this host. If no host of the job has such a limit, the ranks are distributed
    /// evenly, and the numbers of two hosts differ by at most one. If some hosts have a limit, a host without a limit
    /// takes at most one rank.
    pub slots: Option<u32>,
}

/// Parses `NAME` or `NAME:SLOTS`. An IPv6 address with slots must be in brackets.
impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        let (name, slots) = match text.rsplit_once(':') {
            Some((name, slots)) if !name.contains(':') || name.ends_with(']') => (name, Some(slots)),
            _ => (text, None),
        };
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        // The remote shell would take a name with a leading dash for an option.
        if name.is_empty() || name.starts_with('-') || name.contains(char::is_whitespace) {
            return Err(format!("`{text}` is no host: give a name or an address, like `node7` or `node7:4`"));
        }
        let slots = slots.map(|slots| parse_slots(text, slots)).transpose()?;
        Ok(Host { name: name.to_owned(), slots })
    }
}

impl Host {
    /// Parses the hosts of a file: one a line, `NAME`, `NAME:SLOTS` or `NAME slots=SLOTS`. A `#` starts a
    /// comment.
    ///
    /// # Errors
    /// The first mistake in the text, with the number of its line.
    pub fn read_all(text: &str) -> Result<Vec<Host>, String> {
        let mut hosts = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(first) = words.next() else { continue };
            let at = |error| format!("line {number}: {error}");
            let mut host: Host = first.parse().map_err(at)?;
            for word in words {
                match word.split_once('=') {
                    Some(("slots", slots)) => host.slots = Some(parse_slots(line, slots).map_err(at)?),
                    _ => {
                        return Err(at(format!("`{word}` is not understood: only `slots=N` follows a host")));
                    }
                }
            }
            hosts.push(host);
        }
        Ok(hosts)
    }
}

fn parse_slots(whole: &str, slots: &str) -> Result<u32, String> {
    slots
        .parse()
        .ok()
        .filter(|&slots| slots > 0)
        .ok_or_else(|| format!("`{slots}` in `{whole}` is no number of ranks above 0"))
}

/// Returns the ranks of each host: consecutive ranks, in the order of the hosts. Leaves out hosts without ranks.
pub(super) fn distribute(hosts: &[Host], ranks: u32) -> Result<Vec<(&Host, Range<u32>)>, LaunchError> {
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let fair = |index: u32| ranks / count + u32::from(index < ranks % count);
    let has_slots = hosts.iter().any(|host| host.slots.is_some());
    let mut next = 0;
    let mut placed = Vec::new();
    for (index, host) in (0..).zip(hosts) {
        let room = if has_slots { host.slots.unwrap_or(1) } else { fair(index) };
        let end = next + room.min(ranks - next);
        if end > next {
            placed.push((host, next..end));
        }
        next = end;
    }
    if next < ranks { Err(LaunchError::Slots { ranks, slots: next }) } else { Ok(placed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: Option<u32>) -> Host {
        Host { name: name.to_owned(), slots }
    }

    #[test]
    fn hosts_are_names_or_addresses_with_or_without_slots() {
        for (text, name, slots) in [
            ("a", "a", None),
            ("a:4", "a", Some(4)),
            ("me@a.b:1", "me@a.b", Some(1)),
            ("10.0.0.1:2", "10.0.0.1", Some(2)),
            ("fe80::1", "fe80::1", None),
            ("[fe80::1]", "fe80::1", None),
            ("[fe80::1]:3", "fe80::1", Some(3)),
        ] {
            assert_eq!(text.parse(), Ok(host(name, slots)), "{text}");
        }
        for bad in ["", ":4", "a:", "a:0", "a:-1", "a:b", "-oProxyCommand=x", "a b"] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_names_a_host_a_line() {
        let text = "# ours\n\na\nb:2 # two\nc slots=3\n";
        assert_eq!(Host::read_all(text), Ok(vec![host("a", None), host("b", Some(2)), host("c", Some(3))]));
        assert!(Host::read_all("a\nb cpus=3").unwrap_err().starts_with("line 2: "));
    }

    #[test]
    fn ranks_go_to_hosts_in_pieces() {
        let place = |hosts: &[Option<u32>], ranks| {
            let hosts: Vec<_> = hosts.iter().map(|&slots| host("h", slots)).collect();
            distribute(&hosts, ranks)
                .map(|placed| placed.into_iter().map(|(_, ranks)| ranks).collect::<Vec<_>>())
        };
        assert_eq!(place(&[None, None, None], 7).unwrap(), [0..3, 3..5, 5..7]);
        assert_eq!(place(&[None, None, None], 2).unwrap(), [0..1, 1..2]);
        assert_eq!(place(&[Some(4), Some(4)], 5).unwrap(), [0..4, 4..5]);
        assert_eq!(place(&[Some(2), Some(4), Some(4)], 3).unwrap(), [0..2, 2..3]);
        assert_eq!(place(&[None, Some(2)], 3).unwrap(), [0..1, 1..3]);
        assert!(matches!(place(&[None, Some(2)], 4), Err(LaunchError::Slots { ranks: 4, slots: 3 })));
    }
}
