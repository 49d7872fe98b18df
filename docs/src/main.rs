//! `samite-guide build FOLDER` writes the book to that folder. `samite-guide follow FOLDER` runs the pages' commands,
//! in the order of the pages, in an empty folder.
//!
//! The fenced blocks of a page have these meanings:
//! * `rust` is written to the file that a comment in its first line names, if there is one;
//! * `sh` is run in the directory where the previous block ended; a failing command fails the page, unless the block is
//!   marked `fails`;
//! * `text` directly after it is the expected output: its lines must occur in this order, and `…` matches any text;
//! * `console` is for machines that are not available here: it is shown and counted, and not run.

#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "it tells how long the commands take")]

mod page;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use mdbook_driver::MDBook;

use crate::page::{Block, Kind};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match &arguments[..] {
        [task, folder] if task == "build" => build(Path::new(folder)),
        [task, folder] if task == "follow" => follow(Path::new(folder)),
        _ => Err("usage: samite-guide build|follow FOLDER".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("samite-guide: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The guide's folder.
const HOME: &str = env!("CARGO_MANIFEST_DIR");

fn build(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut book = MDBook::load(HOME)?;
    book.config.build.build_dir = std::path::absolute(folder)?;
    Ok(book.build()?)
}

fn follow(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut reader = Reader { place: std::path::absolute(folder)?, said: String::new() };
    let (mut run, mut shown) = (0, 0);
    for name in page::order(&fs::read_to_string(Path::new(HOME).join("pages/SUMMARY.md"))?) {
        let text = fs::read_to_string(Path::new(HOME).join("pages").join(&name))?;
        for block in page::blocks(&text) {
            match block.kind {
                Kind::Shown => shown += 1,
                Kind::Run { .. } => run += 1,
                _ => {}
            }
            reader.take(&block).map_err(|error| format!("{name}, line {}: {error}", block.line))?;
        }
    }
    println!("guide: {run} blocks of commands did what the pages say; {shown} are for other machines");
    Ok(())
}

/// A simulated reader who types the pages' commands.
struct Reader {
    /// The current directory.
    place: PathBuf,
    /// The output of the most recent block of commands.
    said: String,
}

impl Reader {
    fn take(&mut self, block: &Block<'_>) -> Result<(), Box<dyn Error>> {
        match block.kind {
            Kind::File(path) => {
                let path = self.place.join(path);
                fs::create_dir_all(path.parent().unwrap_or(&self.place))?;
                Ok(fs::write(path, block.text)?)
            }
            Kind::Run { fails } => self.run(block.text, fails),
            Kind::Output => page::expect(block.text, &self.said).map_err(Into::into),
            Kind::Shown | Kind::Other => Ok(()),
        }
    }

    fn run(&mut self, commands: &str, fails: bool) -> Result<(), Box<dyn Error>> {
        println!("$ {}", commands.trim_end().replace('\n', "\n$ "));
        let begin = Instant::now();
        let place = std::env::temp_dir().join(format!("samite-guide-{}", std::process::id()));
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c"])
            .arg(format!("trap 'pwd > \"$PLACE\"' EXIT\nexec 2>&1\n{commands}"))
            .env("PLACE", &place)
            .current_dir(&self.place)
            .stdin(Stdio::null())
            .output()?;
        self.said = String::from_utf8_lossy(&output.stdout).into_owned();
        self.place = PathBuf::from(fs::read_to_string(&place)?.trim_end());
        fs::remove_file(&place)?;
        println!("{}[{:.1} s]", self.said, begin.elapsed().as_secs_f64());
        match output.status.success() {
            succeeded if succeeded != fails => Ok(()),
            _ => Err(format!("the commands ended with {}:\n{commands}", output.status).into()),
        }
    }
}
