//! Tuning files: thresholds of messages, and rows for the choice of collective algorithms, that `samite-bench tune` has
//! measured on a machine. The format is a part of TOML.
//!
//! ```text
//! # A section for each transport, with the version of the library with which it was measured.
//! ["tcp;ofi_rxm"]
//! libfabric = "1.17"
//! stream_max = 65536
//!
//! ["samite-shm"]
//! samite = "0.1.0"
//! read_min = 16384
//! # Rows of ranks, bytes and an algorithm: see `samite_coll::Rows::parse`.
//! allreduce = "2 1024 board, 8 any ring"
//! ```

use std::fmt::Write;

use samite_coll::Rows;
use samite_p2p::{Config, Library, Parameter, Tuning};

/// A section of a tuning file: what was measured over a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The thresholds of messages.
    pub messages: Tuning,
    /// The rows for the choice of collective algorithms.
    pub collectives: Rows,
}

/// The error of a tuning file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The number of the line, from 1.
    pub line: usize,
    /// The mistake.
    pub reason: String,
}

/// Parses the text of a tuning file.
///
/// # Errors
/// [`Malformed`] for the first line that has a wrong format, an unknown parameter, an invalid value or a repeated name.
/// If there is no such line, [`Malformed`] for the first section that has no version.
pub fn parse(text: &str) -> Result<Vec<Section>, Malformed> {
    let mut sections = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let result = match line.trim() {
            line if line.is_empty() || line.starts_with('#') => Ok(()),
            line => parse_line(line, number, &mut sections),
        };
        result.map_err(|reason| Malformed { line: number, reason })?;
    }
    sections.into_iter().map(Unfinished::finish).collect()
}

/// Writes a tuning file that [`parse`] reads.
#[must_use]
pub fn write(sections: &[Section]) -> String {
    let mut text = String::new();
    for Section { messages: Tuning { transport, library, version, values }, collectives } in sections {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n[\"{transport}\"]\n{} = \"{version}\"", library.name());
        for (name, value) in values {
            let _ = writeln!(text, "{name} = {value}");
        }
        for (operation, rows) in collectives.texts() {
            let _ = writeln!(text, "{operation} = \"{rows}\"");
        }
    }
    text
}

/// A section that is not complete yet.
struct Unfinished {
    line: usize,
    transport: String,
    version: Option<(Library, String)>,
    values: Vec<(&'static str, u64)>,
    collectives: Rows,
}

impl Unfinished {
    fn finish(self) -> Result<Section, Malformed> {
        let Self { line, transport, version, values, collectives } = self;
        let (library, version) = version.ok_or_else(|| Malformed {
            line,
            reason: format!("the section of `{transport}` has no version: `libfabric` or `samite`"),
        })?;
        Ok(Section { messages: Tuning { transport, library, version, values }, collectives })
    }
}

fn parse_line(line: &str, number: usize, sections: &mut Vec<Unfinished>) -> Result<(), String> {
    if let Some(name) = line.strip_prefix('[') {
        let name = name.strip_suffix(']').and_then(quoted).ok_or("a section is a name in `[\"` and `\"]`")?;
        if sections.iter().any(|section| section.transport == name) {
            return Err(format!("`{name}` has a second section"));
        }
        sections.push(Unfinished {
            line: number,
            transport: name.to_owned(),
            version: None,
            values: Vec::new(),
            collectives: Rows::NONE,
        });
        return Ok(());
    }
    let (name, value) = line.split_once('=').ok_or("it is neither a section nor `name = value`")?;
    let (name, value) = (name.trim(), value.trim());
    let section = sections.last_mut().ok_or("a value comes before the first section")?;
    if let Some(library) = Library::ALL.into_iter().find(|library| library.name() == name) {
        let version = quoted(value).ok_or_else(|| format!("the version of {name} is not in quotes"))?;
        if section.version.replace((library, version.to_owned())).is_some() {
            return Err("the section has a second version".to_owned());
        }
        return Ok(());
    }
    if Rows::OPERATIONS.contains(&name) {
        let rows = quoted(value).and_then(|text| Rows::parse(name, text)).ok_or_else(|| {
            format!("{name} is `{value}`, but must be rows like `\"2 1024 ALGORITHM, any any ALGORITHM\"`")
        })?;
        if section.collectives.texts().any(|(known, _)| known == name) {
            return Err(format!("`{name}` is repeated"));
        }
        section.collectives = std::mem::replace(&mut section.collectives, Rows::NONE).before(&rows);
        return Ok(());
    }
    let parameter = tunable(name).ok_or_else(|| format!("`{name}` is no parameter that can be tuned"))?;
    if section.values.iter().any(|(known, _)| *known == name) {
        return Err(format!("`{name}` is repeated"));
    }
    let range = parameter.min..=parameter.max;
    let value = value.parse().ok().filter(|value| range.contains(value)).ok_or_else(|| {
        format!("{name} is `{value}`, but must be a number from {} to {}", parameter.min, parameter.max)
    })?;
    section.values.push((parameter.name, value));
    Ok(())
}

/// Returns the parameter of the name if tuning files may have it.
fn tunable(name: &str) -> Option<&'static Parameter> {
    Tuning::PARAMETERS.contains(&name).then_some(())?;
    Config::PARAMETERS.iter().find(|parameter| parameter.name == name)
}

/// Returns the text between quotes. A name of a transport or a version contains no quotes and no backslashes.
fn quoted(text: &str) -> Option<&str> {
    let text = text.strip_prefix('"')?.strip_suffix('"')?;
    (!text.is_empty() && !text.contains(['"', '\\'])).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let section = |transport: &str, library, values: &[(&'static str, u64)], collectives| Section {
            messages: Tuning {
                transport: transport.to_owned(),
                library,
                version: "1.17".to_owned(),
                values: values.to_vec(),
            },
            collectives,
        };
        let rows = Rows::parse("bcast", "2 8 board, any any chain:4096").unwrap();
        let rows = rows.before(&Rows::parse("reduce_scatter", "any any pairwise").unwrap());
        let sections = [
            section("tcp;ofi_rxm", Library::Libfabric, &[("stream_max", 65_536), ("put_min", 1)], Rows::NONE),
            section("samite-shm", Library::Samite, &[], rows),
        ];
        let text = write(&sections);
        assert_eq!(parse(&format!("# a comment\n{text}")).as_deref(), Ok(&sections[..]), "{text}");
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let good = "[\"t\"]\nlibfabric = \"1\"\n";
        for (text, line, part) in [
            ("eager_max = 5", 1, "before the first section"),
            ("\n[t]", 2, "a section is"),
            ("[\"t\"]\n", 1, "has no version"),
            ("[\"t\"]\nlibfabric = 1", 2, "not in quotes"),
            (&format!("{good}samite = \"1\""), 3, "second version"),
            (&format!("{good}[\"t\"]"), 3, "second section"),
            (&format!("{good}eager = 5"), 3, "`eager` is no parameter"),
            (&format!("{good}outbox_max = 5"), 3, "`outbox_max` is no parameter"),
            (&format!("{good}eager_max 5"), 3, "neither"),
            (&format!("{good}eager_max = 2097152"), 3, "from 0 to 1048576"),
            (&format!("{good}eager_max = -1"), 3, "from 0 to 1048576"),
            (&format!("{good}eager_max = 1\n\neager_max = 1"), 5, "repeated"),
            (&format!("{good}bcast = \"1 1 board\"\nbcast = \"2 2 board\""), 4, "repeated"),
            (&format!("{good}bcast = \"1 1 ring\""), 3, "must be rows"),
            (&format!("{good}bcast = 5"), 3, "must be rows"),
            (&format!("{good}\u{0}\u{fffd}"), 3, "neither"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.line == line && error.reason.contains(part), "{text:?}: {error:?}");
        }
    }

    #[test]
    fn every_tunable_parameter_exists() {
        assert!(Tuning::PARAMETERS.iter().all(|name| tunable(name).is_some()));
    }
}
