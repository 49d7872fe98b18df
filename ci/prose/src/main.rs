//! Counts turns of phrase that make comments and pages hard to read.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use regex::Regex;

/// The largest number of hits for 1,000 words of all files.
const TREE_MAX: f64 = 3.0;

/// The largest number of hits for 1,000 words of one crate. A crate with fewer words counts as if it had 1,000.
const CRATE_MAX: f64 = 4.0;

/// Each kind of turn: its name, a pattern, and a phrase that the pattern finds.
const KINDS: [(&str, &str, &str); 7] = [
    (
        "a pronoun without a noun",
        r"(?i)\b(?:who|what|which|whom)ever\b|\b(?:no|some|any)body\b",
        "whoever waits",
    ),
    (
        "a clause in place of a noun",
        r"(?i)\bwhat (?:(?:is|are|was|were|has|had|he|it|they|the|this|that|a|one|others?|users?|peers?|of)\b|(?:can|cannot|comes?|came|goes|went|lies|waits?|would|becomes?|became)\b)|\b(?:and|but|by|for|from|in|of|than|to|with) (?:what|who|whom)\b",
        "what was put",
    ),
    (
        "a demonstrative for a noun",
        r"(?i)\bthose (?:of|that|who)\b|\bthe one (?:that|who)\b|\bthat is meant\b|\bhimself\b",
        "those who wait",
    ),
    (
        "a missing subject",
        r"(?:^|[.:;] )Whether\b|\bnone (?:if|where)\b|\bas (?:one\b|it (?:is|was)\b)",
        "Whether it did",
    ),
    (
        "news in place of an event",
        r"(?i)\b(?:is|are|be) told\b|\btells? of\b|\bhears? of\b|\bit is that\b",
        "the peer is told",
    ),
    (
        "an old word",
        r"(?i)\b(?:seldom|ere|lest|thereof|hence(?:forth)?|in vain|at hand|but for|in its turn|for the sake of)\b",
        "in vain",
    ),
    ("a metaphor", r"(?i)\b(?:buried|obituary|gossip|knocks?|befalls?|strangers? at)\b", "is buried"),
];

/// Counts turns of phrase that make comments and pages hard to read, per 1,000 words.
#[derive(Parser)]
struct Arguments {
    /// The number of lines to print, the worst first.
    #[arg(long, default_value_t = 25)]
    top: usize,
    /// Files to check, without limits. By default all tracked files are checked, with limits.
    files: Vec<PathBuf>,
}

#[derive(Default)]
struct Count {
    words: usize,
    hits: usize,
}

impl Count {
    fn rate(&self, words_min: usize) -> f64 {
        1000.0 * self.hits as f64 / self.words.max(words_min) as f64
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { top, files } = Arguments::parse();
    let has_limits = files.is_empty();
    let files = match has_limits {
        // bindings.rs has the comments of libfabric's headers.
        true => {
            let mut all = tracked(&["*.rs", "*.md", "*.sh", "*.c", ".ci/run"])?;
            all.retain(|path| !path.ends_with("bindings.rs"));
            all
        }
        false => files,
    };
    let crates: Vec<_> =
        tracked(&["*Cargo.toml"])?.iter().filter_map(|path| Some(path.parent()?.to_owned())).collect();
    let rules: Vec<_> = KINDS
        .iter()
        .map(|(kind, pattern, _)| Ok((*kind, Regex::new(pattern)?)))
        .collect::<Result<_, regex::Error>>()?;

    let mut counts = BTreeMap::<PathBuf, Count>::new();
    let mut worst = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let owner = crates
            .iter()
            .filter(|folder| path.starts_with(folder))
            .max_by_key(|folder| folder.components().count());
        let count = counts.entry(owner.cloned().unwrap_or_default()).or_default();
        for (number, line) in prose(&path, &text) {
            let kinds: Vec<_> =
                rules.iter().flat_map(|(kind, rule)| rule.find_iter(&line).map(move |_| *kind)).collect();
            count.words += line.split_whitespace().count();
            count.hits += kinds.len();
            if let Some(kind) = kinds.first() {
                worst.push((kinds.len(), format!("  {}:{number}: {kind}: {line}", path.display())));
            }
        }
    }
    worst.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    report(&counts);
    worst.iter().take(top).for_each(|(_, line)| println!("{line}"));

    let mut above: Vec<_> = counts
        .iter()
        .filter(|(_, count)| count.rate(1000) > CRATE_MAX)
        .map(|(folder, _)| format!("{} is above {CRATE_MAX}", name_of(folder)))
        .collect();
    if total(&counts).rate(1) > TREE_MAX {
        above.push(format!("the whole tree is above {TREE_MAX}"));
    }
    if !has_limits || above.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    above.iter().for_each(|text| eprintln!("prose: {text}"));
    Ok(ExitCode::FAILURE)
}

fn report(counts: &BTreeMap<PathBuf, Count>) {
    let mut rows: Vec<_> = counts.iter().map(|(folder, count)| (name_of(folder), count)).collect();
    rows.sort_by(|(_, a), (_, b)| b.rate(1000).total_cmp(&a.rate(1000)));
    for (name, count) in rows {
        println!("{name:20} {:5.1} in 1,000 of {} words", count.rate(1000), count.words);
    }
    let all = total(counts);
    println!("{:20} {:5.1} in 1,000 of {} words", "all", all.rate(1), all.words);
}

fn total(counts: &BTreeMap<PathBuf, Count>) -> Count {
    counts.values().fold(Count::default(), |sum, count| Count {
        words: sum.words + count.words,
        hits: sum.hits + count.hits,
    })
}

fn name_of(folder: &Path) -> String {
    if folder.as_os_str().is_empty() { "(top)".to_owned() } else { folder.display().to_string() }
}

/// Returns the tracked files that match one of `patterns`.
fn tracked(patterns: &[&str]) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let output = Command::new("git").arg("ls-files").args(patterns).output()?;
    if !output.status.success() {
        return Err("git ls-files failed: run this in a checkout".into());
    }
    Ok(String::from_utf8(output.stdout)?.lines().map(PathBuf::from).collect())
}

/// Returns the prose of a file: the number and the text of each line of a comment, or of a page outside of code blocks.
fn prose(path: &Path, text: &str) -> Vec<(usize, String)> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let (mut is_fenced, mut is_block) = (false, false);
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let comment = match extension {
            Some("md") => Some(line),
            Some("rs") => {
                line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']))
            }
            Some("c") => c_comment(line, &mut is_block),
            _ => line.trim_start().strip_prefix('#').filter(|rest| !rest.starts_with('!')),
        };
        let Some(comment) = comment.map(str::trim) else { continue };
        if comment.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            found.push((number, without_code(comment)));
        }
    }
    found
}

/// Returns the comment on a line of C. `is_block` tells whether the line begins inside of a block comment.
fn c_comment<'a>(line: &'a str, is_block: &mut bool) -> Option<&'a str> {
    if *is_block || line.contains("/*") {
        let from = if *is_block { 0 } else { line.find("/*").map_or(0, |at| at + 2) };
        let end = line[from..].find("*/");
        *is_block = end.is_none();
        return Some(line[from..].split("*/").next().unwrap_or_default().trim_start_matches([' ', '*']));
    }
    line.split_once("//").map(|(_, comment)| comment)
}

/// Replaces each piece of code between backquotes by a letter.
fn without_code(line: &str) -> String {
    let pieces: Vec<_> = line.split('`').collect();
    // An odd number of backquotes leaves the last piece as text.
    let last = pieces.len() - 1;
    let mut text = String::new();
    for (index, piece) in pieces.iter().enumerate() {
        match index % 2 {
            1 if index < last => text.push('x'),
            _ => text.push_str(piece),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pattern_finds_its_phrase() {
        for (kind, pattern, phrase) in KINDS {
            assert!(Regex::new(pattern).unwrap().is_match(phrase), "{kind}");
        }
    }

    #[test]
    fn comments_are_found_and_code_is_not() {
        let lines = |path: &str, text: &str| -> Vec<_> {
            prose(Path::new(path), text)
                .into_iter()
                .map(|(number, line)| format!("{number} {line}"))
                .collect()
        };
        assert_eq!(lines("a.rs", "//! One `two` three\nfn f() {}\n    // four"), ["1 One x three", "3 four"]);
        assert_eq!(lines("a.sh", "#!/bin/sh\n# one\ntwo # three"), ["2 one"]);
        assert_eq!(lines("a.md", "one\n```\ntwo\n```\nthree"), ["1 one", "5 three"]);
        assert_eq!(
            lines("a.c", "/* one\n * two */ int x;\nint y; // three\nint z;"),
            ["1 one", "2 two", "3 three"]
        );
    }
}
