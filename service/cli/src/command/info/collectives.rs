//! The algorithms that collective calls would use, with their costs and schedules.

use std::fmt::{Debug, Write};
use std::sync::Arc;

use samite_coll::algorithms::hosts::Hosts;
use samite_coll::{Blocks, Buffer, Place, Plan, Situation, Span, Step, check};
use samite_control::Settings;
use serde_json::json;

use super::{Section, row, table};

/// The transports of a job that has not selected one, as far as tuning files concern them.
const DEFAULT: &str = "samite-shm+tcp;ofi_rxm";

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

/// The ranks of a question about collective calls.
#[derive(Clone, Copy)]
pub(super) struct Job {
    /// The number of ranks.
    pub(super) n: u32,
    /// The bytes of a block.
    pub(super) bytes: usize,
    /// The number of ranks of each host, except the last one.
    pub(super) per_host: u32,
    /// True if the ranks of a host share a board.
    pub(super) has_board: bool,
}

impl Job {
    fn hosts(self) -> Arc<Hosts> {
        Arc::new(Hosts::new((0..self.n).map(|rank| rank / self.per_host)))
    }

    fn place(self) -> String {
        let board = if self.has_board { "over shared memory" } else { "without a shared board" };
        match self.per_host < self.n {
            true => format!("with {} on a host, {board} within a host", self.per_host),
            false if self.has_board => format!("on one host, {board}"),
            false => board.to_owned(),
        }
    }
}

/// Returns the algorithms of all calls.
pub(super) fn collectives(settings: &Settings, job: Job) -> Result<Section, String> {
    let mut rows = vec![row(["CALL", "ROUNDS", "MOST SENT", "ALGORITHM"])];
    let mut calls = Vec::new();
    let Job { n, bytes, .. } = job;
    for Planned { call, plan, why } in plans(settings, job) {
        let cost = check::cost(n, |_| plan.clone()).map_err(|violation| format!("{call}: {violation:?}"))?;
        let (rounds, most, stages) = (cost.rounds, cost.most_sent(), stages(&plan));
        rows.push(row([call, &rounds.to_string(), &most.to_string(), &why]));
        rows.extend(stages.iter().map(|stage| row(["", "", "", &format!("  {stage}")])));
        calls
            .push(json!({ "call": call, "rounds": rounds, "most_sent": most, "why": why, "stages": stages }));
    }
    let place = job.place();
    let text =
        format!("Collective calls of {n} ranks {place}, blocks of {bytes} bytes\n{}{MEANING}", table(&rows));
    Ok(Section { name: "collectives", text, json: calls.into() })
}

/// Returns the stages of an operation on two levels, each with its way; no stages for another operation.
fn stages(plan: &Plan) -> Vec<String> {
    let Plan::TwoLevels(levels) = plan else { return Vec::new() };
    let within = |what: &str| {
        let way =
            if levels.piece.is_some() { "the board of the host" } else { "messages along a binomial tree" };
        format!("{what} within each host: {way}")
    };
    let between =
        |what: &str, algorithm: &dyn Debug| format!("{what} between the leaders: messages, {algorithm:?}");
    match &*levels.operation {
        Plan::Barrier(algorithm) => {
            vec![within("gather"), between("barrier", algorithm), within("bcast")]
        }
        Plan::Bcast { algorithm, .. } => vec![between("bcast", algorithm), within("bcast")],
        Plan::Reduce { algorithm, .. } => vec![within("reduce"), between("reduce", algorithm)],
        Plan::Allreduce { algorithm, .. } => {
            vec![within("reduce"), between("allreduce", algorithm), within("bcast")]
        }
        Plan::Allgather { algorithm, .. } => {
            vec![within("gather"), between("allgather", algorithm), within("bcast")]
        }
        _ => unreachable!("this operation has one level"),
    }
}

const MEANING: &str = concat!(
    "  A block is what a rank passes in a bcast, a reduction, a scan or an allgather, and what it passes to or gets from\n",
    "  one rank in a gather, a scatter, an alltoall or a reduce_scatter. MOST SENT: the bytes of the rank that sends most.\n",
    "  Elements have one byte. A call with longer elements can use another algorithm if there are fewer elements than ranks.\n",
);

/// Returns the steps of each rank in one call.
pub(super) fn schedule(settings: &Settings, call: &str, job: Job) -> Result<Section, String> {
    let n = job.n;
    let mut planned = plans(settings, job);
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
fn plans(settings: &Settings, job: Job) -> Vec<Planned> {
    let (len, in_place) = (job.bytes, false);
    let only = |name: &str| format!("{name}: the only algorithm");
    let mut plans = vec![
        Planned::new("scan", Plan::Scan { len, in_place }, only("RecursiveDoubling")),
        Planned::new("exscan", Plan::Exscan { len, in_place }, only("RecursiveDoubling")),
    ];
    plans.extend(chosen(settings, job));
    plans
}

/// Returns the plans of the calls for which there are several algorithms.
fn chosen(settings: &Settings, job: Job) -> Vec<Planned> {
    let table = settings.coll_table(settings.transport().unwrap_or(DEFAULT));
    let (Job { n, bytes: len, has_board, .. }, hosts) = (job, job.hosts());
    let (count, has_even_hosts) = (hosts.count(), hosts.is_even());
    let of = |bytes: usize| Situation {
        ranks: n,
        bytes,
        elements: bytes,
        has_board,
        hosts: count,
        has_even_hosts,
        ..Situation::default()
    };
    let (one, all) = (of(len), of(len.saturating_mul(n as usize)));
    let (root, in_place, commutes) = (0, false, true);
    let blocks = || Blocks::Equal(len);
    /// Returns the plan with the chosen algorithm, and the reason of the choice.
    macro_rules! planned {
        ($call:ident, $situation:expr, $algorithm:pat => $plan:expr) => {{
            let choice = table.$call($situation);
            let plan = choice.plan(Some(&hosts), |$algorithm| $plan);
            Planned::new(stringify!($call), plan, choice.to_string())
        }};
    }
    vec![
        planned!(barrier, &of(0), algorithm => Plan::Barrier(algorithm)),
        planned!(reduce, &one, algorithm => Plan::Reduce { algorithm, root, len, commutes, in_place }),
        planned!(bcast, &one, algorithm => Plan::Bcast { algorithm, root, len }),
        planned!(gather, &one, algorithm => {
            Plan::Gather { algorithm, root, blocks: blocks(), len, in_place }
        }),
        planned!(scatter, &one, algorithm => {
            Plan::Scatter { algorithm, root, blocks: blocks(), len, in_place }
        }),
        planned!(allgather, &all, algorithm => Plan::Allgather { algorithm, blocks: blocks(), in_place }),
        planned!(alltoall, &one, algorithm => {
            Plan::Alltoall { algorithm, from: blocks(), into: blocks(), in_place }
        }),
        planned!(allreduce, &one, algorithm => Plan::Allreduce { algorithm, len, commutes, in_place }),
        planned!(reduce_scatter, &all, algorithm => {
            Plan::ReduceScatter { algorithm, blocks: blocks(), commutes, in_place }
        }),
    ]
}
