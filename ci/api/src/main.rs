//! `samite-api FILE.json` prints the public API of a crate, one item in a line, from rustdoc's JSON.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;

use public_api::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: samite-api FILE.json")?;
    // Leaves out blanket, automatic and derived implementations, which would be most of the output.
    let api = Builder::from_rustdoc_json(file).omit_blanket_impls(true).omit_auto_trait_impls(true);
    let api = api.omit_auto_derived_impls(true).build()?;
    let mut out = std::io::stdout().lock();
    for item in api.items() {
        writeln!(out, "{item}")?;
    }
    Ok(())
}
