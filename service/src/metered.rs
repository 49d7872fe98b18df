//! Statistics of the searches in the matching engine, in programs that `samite-bench apps` builds.

use std::path::Path;

use samite_p2p::SearchStats;
use serde_json::{Value, json};

use crate::runtime::Runtime;
use crate::transport::Transport;

/// The environment variable with the folder for the statistics. Each rank writes a file with its number as the name.
const FOLDER: &str = "SAMITE_METERED";

/// Writes the statistics of a rank's first lane, if a folder is set.
pub(crate) fn report(runtime: &Runtime<Transport>) {
    let stats = runtime.look(|engine| Ok(engine.matching_stats()));
    // If `look` fails, the rank has left before, and has written its statistics then.
    let (Some(folder), Ok(stats)) = (std::env::var_os(FOLDER), stats) else { return };
    let queues = json!({ "posted": queue(&stats.posted), "unexpected": queue(&stats.unexpected) });
    let file = Path::new(&folder).join(runtime.rank.0.to_string());
    // The caller has no way to report an error; `samite-bench apps` finds that the file is missing.
    let _ = std::fs::write(file, queues.to_string());
}

fn queue(stats: &SearchStats) -> Value {
    json!({
        "searches": stats.searches,
        "compared": stats.compared,
        "compared_max": stats.compared_max,
        "hops": stats.hops,
        "length_max": stats.length_max,
        "length_sum": stats.length_sum,
    })
}
