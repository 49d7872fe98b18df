//! The algorithms that collective calls would use, with their costs and schedules.

use std::fmt::{Display, Write};

use samite_coll::{Blocks, Buffer, Place, Plan, Situation, Span, Step, Table, check};
use samite_control::Settings;
use serde_json::json;

use super::{Section, row, table};

/// A collective call with the arguments of the question.
struct Planned {
    call: &'static str,
    plan: Plan,
    /// The choice of the algorithm, explained.
    why: String,
}

impl Planned {
    fn new(call: &'static str, plan: Plan, why: String) -> Self {
        Self { call, plan, why }
    }
}

/// Returns the algorithms of all calls for `n` ranks, where each block has `bytes` bytes.
pub(super) fn collectives(
    settings: &Settings,
    n: u32,
    bytes: usize,
    has_board: bool,
) -> Result<Section, String> {
    let mut rows = vec![row(["CALL", "ROUNDS", "MOST SENT", "ALGORITHM"])];
    let mut calls = Vec::new();
    for Planned { call, plan, why } in plans(settings, n, bytes, has_board) {
        let cost = check::cost(n, |_| plan.clone()).map_err(|violation| format!("{call}: {violation:?}"))?;
        let (rounds, most) = (cost.rounds, cost.most_sent());
        rows.push(row([call, &rounds.to_string(), &most.to_string(), &why]));
        calls.push(json!({ "call": call, "rounds": rounds, "most_sent": most, "why": why }));
    }
    let place = if has_board { "on one host, over shared memory" } else { "without a shared board" };
    let text =
        format!("Collective calls of {n} ranks {place}, blocks of {bytes} bytes\n{}{MEANING}", table(&rows));
    Ok(Section { name: "collectives", text, json: calls.into() })
}

const MEANING: &str = concat!(
    "  A block is what a rank passes in a bcast, a reduction, a scan or an allgather, and what it passes to or gets from\n",
    "  one rank in a gather, a scatter, an alltoall or a reduce_scatter. MOST SENT: the bytes of the rank that sends most.\n",
    "  Elements have one byte. A call with longer elements can use another algorithm if there are fewer elements than ranks.\n",
);

/// Returns the steps of each rank in one call.
pub(super) fn schedule(
    settings: &Settings,
    call: &str,
    n: u32,
    bytes: usize,
    has_board: bool,
) -> Result<Section, String> {
    let mut planned = plans(settings, n, bytes, has_board);
    let Some(index) = planned.iter().position(|planned| planned.call == call) else {
        let calls: Vec<_> = planned.iter().map(|planned| planned.call).collect();
        return Err(format!("there is no schedule of `{call}`: the calls are {}", calls.join(", ")));
    };
    let Planned { plan, why, .. } = planned.swap_remove(index);
    let mut text = format!("Schedule of {call}: {why}\n");
    let mut ranks = Vec::new();
    for rank in 0..n {
        let steps: Vec<_> = plan.steps(Place::new(rank, n)).map(described).collect();
        let _ = writeln!(text, "  rank {rank}");
        let _ = writeln!(text, "    {}", steps.join("\n    "));
        ranks.push(json!(steps));
    }
    Ok(Section { name: "schedule", text, json: json!({ "call": call, "why": why, "ranks": ranks }) })
}

fn described(step: Step) -> String {
    match step {
        Step::Send { to, round, from } => format!("send {} to rank {to}, round {round}", span(from)),
        Step::Receive { from, round, into } => {
            format!("receive {} from rank {from}, round {round}", span(into))
        }
        Step::Publish { piece, from } => format!("publish {}, piece {piece}", span(from)),
        Step::Fetch { from, piece, start, into, .. } => {
            format!("fetch {} from rank {from}, piece {piece} from {start} on", span(into))
        }
        Step::Copy { from, into } => format!("copy {} to {}", span(from), span(into)),
        Step::Reduce { from, into } => format!("reduce {} into {}", span(from), span(into)),
        Step::Wait { except: 0 } => "wait for all messages".to_owned(),
        Step::Wait { except } => format!("wait for all messages except the latest {except}"),
    }
}

fn span(span: Span) -> String {
    let buffer = match span.buffer {
        Buffer::Input => "input",
        Buffer::Output => "output",
        Buffer::Scratch => "scratch",
    };
    format!("{buffer}[{}..{}]", span.start, span.end())
}

/// Returns the plans of all calls.
fn plans(settings: &Settings, n: u32, len: usize, has_board: bool) -> Vec<Planned> {
    let in_place = false;
    let only = |name: &str| format!("{name}: the only algorithm");
    let mut plans = vec![
        Planned::new("scan", Plan::Scan { len, in_place }, only("RecursiveDoubling")),
        Planned::new("exscan", Plan::Exscan { len, in_place }, only("RecursiveDoubling")),
    ];
    plans.extend(chosen(settings, n, len, has_board));
    plans
}

/// Returns the plans of the calls for which there are several algorithms.
fn chosen(settings: &Settings, n: u32, len: usize, has_board: bool) -> Vec<Planned> {
    let table = Table { selection: settings.coll_algorithms.clone(), ..Table::default() };
    let of = |bytes: usize| Situation { ranks: n, bytes, elements: bytes, has_board, ..Situation::default() };
    let (one, all) = (of(len), of(len.saturating_mul(n as usize)));
    let (root, in_place, commutes, blocks) = (0, false, true, Blocks::Equal(len));
    let (from, into, same) = (blocks.clone(), blocks.clone(), blocks.clone());
    let barrier = table.barrier(&of(0));
    let bcast = table.bcast(&one);
    let reduce = table.reduce(&one);
    let gather = table.gather(&one);
    let scatter = table.scatter(&one);
    let allgather = table.allgather(&all);
    let alltoall = table.alltoall(&one);
    let allreduce = table.allreduce(&one);
    let reduce_scatter = table.reduce_scatter(&all);
    let explained: [(_, &dyn Display); 9] = [
        (Plan::Barrier(barrier.algorithm), &barrier),
        (Plan::Reduce { algorithm: reduce.algorithm, root, len, commutes, in_place }, &reduce),
        (Plan::Bcast { algorithm: bcast.algorithm, root, len }, &bcast),
        (Plan::Gather { algorithm: gather.algorithm, root, blocks: same.clone(), len, in_place }, &gather),
        (Plan::Scatter { algorithm: scatter.algorithm, root, blocks: same.clone(), len, in_place }, &scatter),
        (Plan::Allgather { algorithm: allgather.algorithm, blocks: same, in_place }, &allgather),
        (Plan::Alltoall { algorithm: alltoall.algorithm, from, into, in_place }, &alltoall),
        (Plan::Allreduce { algorithm: allreduce.algorithm, len, commutes, in_place }, &allreduce),
        (
            Plan::ReduceScatter { algorithm: reduce_scatter.algorithm, blocks, commutes, in_place },
            &reduce_scatter,
        ),
    ];
    let calls = [
        "barrier",
        "reduce",
        "bcast",
        "gather",
        "scatter",
        "allgather",
        "alltoall",
        "allreduce",
        "reduce_scatter",
    ];
    calls
        .into_iter()
        .zip(explained)
        .map(|(call, (plan, why))| Planned::new(call, plan, why.to_string()))
        .collect()
}
