//! The cost of a collective operation of many ranks, by a simulation of the schedule of each rank.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use samite_coll::algorithms::hosts::Hosts;
use samite_coll::{Blocks, LogGp, Place, Plan, Selection, Situation, Table, check, simulate};

/// The arguments of `samite-bench simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The operation: barrier, bcast, gather, scatter, allgather, alltoall, reduce, allreduce, reduce_scatter, scan or
    /// exscan
    operation: String,
    /// The number of ranks
    #[arg(short, default_value_t = 1024)]
    n: u32,
    /// The bytes of a block: of one rank's data or, in a gather, scatter, allgather, alltoall or reduce_scatter, of the
    /// data from or for one rank
    #[arg(long, default_value_t = 8)]
    bytes: usize,
    /// The number of consecutive ranks on each host, which send messages to each other too
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_host: Option<u32>,
    /// Algorithms in place of those that the table chooses, like `allreduce=ring`
    #[arg(long, default_value = "none")]
    algorithms: String,
    /// L: the time of a message in the network, ns
    #[arg(long, default_value_t = 1000)]
    latency_ns: u64,
    /// o: the time of a processor for a message that it sends or receives, ns
    #[arg(long, default_value_t = 200)]
    overhead_ns: u64,
    /// g: the shortest time between two messages of a rank, ns
    #[arg(long, default_value_t = 100)]
    gap_ns: u64,
    /// G: the time of a byte, ps
    #[arg(long, default_value_t = 80)]
    gap_per_byte_ps: u64,
}

/// The largest number of steps that are simulated, of all ranks together.
const STEPS_MAX: u64 = 1 << 28;

impl SimulateArgs {
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
        let (plan, why) = self.plan()?;
        self.check_size(&plan)?;
        let network = LogGp {
            latency: 1000 * self.latency_ns,
            overhead: 1000 * self.overhead_ns,
            gap: 1000 * self.gap_ns,
            gap_per_byte: self.gap_per_byte_ps,
        };
        let wrong = |violation| format!("the schedule is wrong: {violation:?}");
        let rounds = check::cost(self.n, |_| plan.clone()).map_err(wrong)?.rounds;
        let end = simulate(self.n, |_| plan.clone(), 1, network).map_err(wrong)?;
        let (least, most) = (end.sent.iter().min(), end.sent.iter().max());
        let all: u64 = end.sent.iter().sum();
        say!("{} of {} ranks: {why}", self.operation, self.n);
        say!("  rounds              {rounds}");
        say!("  messages            {}", end.messages);
        say!(
            "  bytes sent by rank  least {}, mean {:.1}, most {}",
            least.unwrap_or(&0),
            all as f64 / f64::from(self.n),
            most.unwrap_or(&0)
        );
        say!("  LogGP time          {:.3} us", end.time as f64 / 1e6);
        Ok(ExitCode::SUCCESS)
    }

    /// Checks that the simulation ends in a reasonable time: some algorithms have as many steps as ranks.
    fn check_size(&self, plan: &Plan) -> Result<(), String> {
        let most = STEPS_MAX / u64::from(self.n.max(1));
        let steps_of = |rank| plan.steps(Place::new(rank, self.n)).take(most as usize + 1).count() as u64;
        // The last rank has no special part in any operation.
        match self.n == 0 || steps_of(self.n - 1) > most {
            true => {
                Err(format!("a rank has over {most} steps: pass a number of ranks from 1 on, or fewer ranks"))
            }
            false => Ok(()),
        }
    }

    /// Returns the plan of all ranks, and the reason for its algorithm.
    fn plan(&self) -> Result<(Plan, String), String> {
        let Some(selection) = Selection::parse(&self.algorithms) else {
            return Err(format!(
                "{} selects no algorithms: the selection is {}",
                self.algorithms,
                Selection::NAMES
            ));
        };
        let table = Table { selection, ..Table::default() };
        let (n, len, root, in_place, commutes) = (self.n, self.bytes, 0, false, true);
        let per_host = self.ranks_per_host.map_or(n, |ranks| ranks.min(n)).max(1);
        let hosts = Arc::new(Hosts::new((0..n).map(|rank| rank / per_host)));
        let (count, has_even_hosts) = (hosts.count(), hosts.is_even());
        let of = |bytes| Situation {
            ranks: n,
            bytes,
            elements: bytes,
            commutes,
            hosts: count,
            has_even_hosts,
            ..Situation::default()
        };
        let (one, all) = (of(len), of(len.saturating_mul(n as usize)));
        let blocks = Blocks::Equal(len);
        let only = |plan| Ok((plan, "the only algorithm".to_owned()));
        /// Returns the plan with the chosen algorithm, and the reason of the choice.
        macro_rules! chosen {
            ($choice:expr, $algorithm:ident => $plan:expr) => {{
                let choice = $choice;
                Ok((choice.plan(Some(&hosts), |$algorithm| $plan), choice.to_string()))
            }};
        }
        match &*self.operation {
            "barrier" => chosen!(table.barrier(&of(0)), algorithm => Plan::Barrier(algorithm)),
            "reduce" => chosen!(table.reduce(&one), algorithm => {
                Plan::Reduce { algorithm, root, len, commutes, in_place }
            }),
            "scan" => only(Plan::Scan { len, in_place }),
            "exscan" => only(Plan::Exscan { len, in_place }),
            "bcast" => chosen!(table.bcast(&one), algorithm => Plan::Bcast { algorithm, root, len }),
            "gather" => chosen!(table.gather(&one), algorithm => {
                Plan::Gather { algorithm, root, blocks, len, in_place }
            }),
            "scatter" => chosen!(table.scatter(&one), algorithm => {
                Plan::Scatter { algorithm, root, blocks, len, in_place }
            }),
            "allgather" => chosen!(table.allgather(&all), algorithm => {
                Plan::Allgather { algorithm, blocks, in_place }
            }),
            "alltoall" => chosen!(table.alltoall(&one), algorithm => {
                Plan::Alltoall { algorithm, from: blocks.clone(), into: blocks, in_place }
            }),
            "allreduce" => chosen!(table.allreduce(&one), algorithm => {
                Plan::Allreduce { algorithm, len, commutes, in_place }
            }),
            "reduce_scatter" => chosen!(table.reduce_scatter(&all), algorithm => {
                Plan::ReduceScatter { algorithm, blocks, commutes, in_place }
            }),
            other => Err(format!("there is no operation `{other}`: see samite-bench simulate --help")),
        }
    }
}
