//! The fenced blocks of a page, by the action that they require.

/// The text between two fences.
pub(crate) struct Block<'a> {
    pub(crate) kind: Kind<'a>,
    pub(crate) text: &'a str,
    /// The line of the page on which the block begins.
    pub(crate) line: usize,
}

pub(crate) enum Kind<'a> {
    /// Text to write to this file.
    File(&'a str),
    /// Commands to run.
    Run {
        fails: bool,
    },
    /// The expected output of the commands before it.
    Output,
    /// Commands for another machine.
    Shown,
    Other,
}

/// Returns the names of the pages, in the order of the summary.
pub(crate) fn order(summary: &str) -> Vec<String> {
    let links = summary.lines().filter_map(|line| line.split_once("](")?.1.split_once(')'));
    links.map(|(path, _)| path.to_owned()).collect()
}

pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut open: Option<(&str, usize, usize)> = None;
    // True if only empty lines followed the last block.
    let mut is_next = false;
    let mut offset = 0;
    for (number, line) in page.split_inclusive('\n').enumerate() {
        let end = offset + line.len();
        match (open, line.trim_end().strip_prefix("```")) {
            (None, Some(info)) => open = Some((info, end, number + 1)),
            (Some((info, begin, line)), Some("")) => {
                let text = &page[begin..offset];
                let after = blocks.last().filter(|_| is_next).map(|block| &block.kind);
                blocks.push(Block { kind: kind(info, text, after), text, line });
                (open, is_next) = (None, true);
            }
            (None, None) if !line.trim().is_empty() => is_next = false,
            _ => {}
        }
        offset = end;
    }
    blocks
}

fn kind<'a>(info: &str, text: &'a str, after: Option<&Kind<'_>>) -> Kind<'a> {
    let mut words = info.split(',');
    match words.next() {
        Some("rust") => {
            let path = text.lines().next().and_then(|line| line.strip_prefix("// "));
            path.filter(|path| path.ends_with(".rs") && !path.contains(' ')).map_or(Kind::Other, Kind::File)
        }
        Some("sh") => Kind::Run { fails: words.any(|word| word == "fails") },
        Some("text") if matches!(after, Some(Kind::Run { .. })) => Kind::Output,
        Some("console") => Kind::Shown,
        _ => Kind::Other,
    }
}

/// Checks that the lines of `expected` occur in this order among the lines of `said`.
pub(crate) fn expect(expected: &str, said: &str) -> Result<(), String> {
    let mut lines = said.lines();
    for line in expected.lines().filter(|line| *line != "…") {
        if !lines.any(|candidate| is_like(line, candidate)) {
            return Err(format!("this line did not come, or not in its place: {line}"));
        }
    }
    Ok(())
}

/// Returns true if `line` matches the page's line `expected`, in which `…` matches any text.
fn is_like(expected: &str, line: &str) -> bool {
    let mut parts = expected.trim_end().split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.trim_end().strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    let mut is_whole = parts.peek().is_none();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        is_whole = false;
    }
    is_whole && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_what_their_fences_say() {
        let page = "```sh\na\nb\n```\n\n```text\nc\n```\n\nwords\n\n```text\nd\n```\n```rust\n// src/main.rs\n```\n\
                    ```rust\nlet x = 1;\n```\n```sh,fails\n```\n```console\n$ sbatch\n```\n";
        let kinds: Vec<_> = blocks(page)
            .iter()
            .map(|block| match block.kind {
                Kind::File(path) => path,
                Kind::Run { fails: false } => "run",
                Kind::Run { fails: true } => "fails",
                Kind::Output => "output",
                Kind::Shown => "shown",
                Kind::Other => "other",
            })
            .collect();
        assert_eq!(kinds, ["run", "output", "other", "src/main.rs", "other", "fails", "shown"]);
        assert_eq!((blocks(page)[0].text, blocks(page)[1].line), ("a\nb\n", 6));
    }

    #[test]
    fn output_is_expected_in_its_order() {
        let said = "begin\nrank 3: [2.0] from rank 2\nend\n";
        for right in ["begin\nend", "rank …: […] from rank 2", "…\nbegin\n…", "…rank 2", "rank 3…", "e…d"]
        {
            assert_eq!(expect(right, said), Ok(()), "{right}");
        }
        for wrong in ["end\nbegin", "begi", "begin…x", "rank …: […] from rank 3", "en…nd", "x…"] {
            assert!(expect(wrong, said).is_err(), "{wrong}");
        }
    }
}
