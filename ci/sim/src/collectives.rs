//! Simulated jobs of ranks that make collective calls, are killed, and go on: executor and schedules, revocations,
//! agreements and shrinks, under delays and reordering across peers.
//!
//! All ranks run the same program. In each round they carry out an operation ([`calls`]), agree if all have succeeded,
//! and shrink the communicator if not. The oracle checks each result of an operation, and that all ranks get the same
//! result of each agreement and of each shrink. Everything follows from the seed.

mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calls::RoundCall;
use samite_coll::{Buffers, Call, Collective, Failed, OwnedBuffers};
use samite_fabric::link::first_incarnation;
use samite_fabric::sim::{Config as NetConfig, Net, SimPort};
use samite_fabric::{Memory, SplitMix64};
use samite_p2p::{
    Agreed, AgreementId, Cause, Config, Decision, Engine, Error, Group, Identity, Progress, Time, WorldRank,
};

use crate::ledger::require;
use crate::rank::NEVER;
use crate::run::Summary;

const SECRET: [u8; 16] = [5; 16];
const ELEMENT: usize = size_of::<u64>();
/// The longest time from a death until a rank gets the launcher's report, in nanoseconds.
const REPORT_NS: u64 = 200_000;
/// The longest time that a step of all ranks takes if it has events, in nanoseconds.
const STEP_NS: u64 = 100_000;
/// The flag that a rank has succeeded.
const WELL: u64 = 1;
/// Virtual time within which a run must end.
const END_NS: u64 = 600_000_000_000;

struct Run {
    net: Net,
    rng: SplitMix64,
    seed: u64,
    /// Boxed, because each poll takes its rank out and puts it back.
    ranks: Vec<Option<Box<Member>>>,
    /// Pending reports of the launcher: the time, the rank that gets the report, and the rank that it is about.
    notices: BTreeSet<(u64, u32, u32)>,
    rounds: u64,
    /// The decisions, by the context and the number of the communicator's agreement.
    decisions: BTreeMap<(u32, u64), Decision>,
    shrunk: BTreeMap<(u32, u64), Agreed>,
    summary: Summary,
}

struct Member {
    rank: WorldRank,
    engine: Engine<SimPort>,
    group: Group,
    context: u32,
    /// The number of agreements and shrinks on this communicator, and of collective operations.
    begun: u64,
    operations: u32,
    /// See [`Call::checked_ends`].
    checked_ends: Option<u64>,
    /// The number of rounds, which is the same at all ranks.
    round: u64,
    phase: Phase,
}

enum Phase {
    Operation(Box<Collective<OwnedBuffers>>),
    Agreeing(AgreementId),
    Shrinking(AgreementId),
    Done,
}

/// Runs one seed.
pub(crate) fn run(seed: u64, verbose: bool) -> Result<Summary, String> {
    let mut run = Run::new(seed);
    if verbose {
        run.net.record();
    }
    let result = run.play();
    if verbose {
        let notes = run.net.take_trace().into_iter().map(|event| format!("{event:?}"));
        notes.for_each(|note| print_line(&note));
    }
    result.map(|()| Summary { hash: run.net.trace_hash(), virtual_ns: run.net.now_ns(), ..run.summary })
}

#[expect(clippy::print_stdout, reason = "a program for the terminal")]
fn print_line(text: &str) {
    println!("{text}");
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed ^ 0x636f_6c6c);
        let mut net_config = NetConfig::adverse(&mut rng);
        // Each kill is known to the launcher, and the network loses nothing else.
        net_config.moves = false;
        let net = Net::new(rng.next_u64(), net_config);
        let size = 1 + rng.below(16) as u32;
        let mut config = Config::default();
        config.eager_max = [0, 64, 16 << 10][rng.below(3) as usize];
        config.stream_max = [0, 700, 128 << 10][rng.below(3) as usize];
        let rounds = 2 + rng.below(5);
        let mut run = Self {
            net,
            rng,
            seed,
            ranks: Vec::new(),
            notices: BTreeSet::new(),
            rounds,
            decisions: BTreeMap::new(),
            shrunk: BTreeMap::new(),
            summary: Summary::default(),
        };
        let first = |rank| first_incarnation(&SECRET, WorldRank(rank));
        for rank in 0..size {
            let identity = Identity { rank: WorldRank(rank), size, incarnation: first(rank), secret: SECRET };
            let mut engine = Engine::new(run.net.start(rank), identity, config.clone());
            engine.expect_word();
            let group = Group::range(WorldRank(0), size);
            let (rank, phase) = (WorldRank(rank), Phase::Done);
            let (context, begun, operations, round, checked_ends) = (1, 0, 0, 0, None);
            run.ranks.push(Some(Box::new(Member {
                rank,
                engine,
                group,
                context,
                begun,
                operations,
                round,
                phase,
                checked_ends,
            })));
        }
        run
    }

    fn play(&mut self) -> Result<(), String> {
        for member in self.ranks.iter_mut().flatten() {
            member.begin_round(self.seed, self.net.now_ns());
        }
        // The mean number of steps between two kills; 0 means no kills.
        let calm = [0, 400, 100, 30][self.rng.below(4) as usize];
        let mut idle = 0;
        while !self.is_over() || idle < 3 {
            if calm > 0 && self.rng.below(calm) == 0 {
                self.kill();
            }
            let events = self.step()?;
            let moved = self.pass_time(events > 0);
            idle = if events == 0 && !moved { idle + 1 } else { 0 };
            require(self.net.now_ns() < END_NS, || format!("it does not end: {}", self.state()))?;
            require(idle < 100_000, || format!("it hangs: {}", self.state()))?;
        }
        self.check_rest()
    }

    fn living(&self) -> impl Iterator<Item = &Member> {
        self.ranks.iter().flatten().map(Box::as_ref)
    }

    fn is_over(&self) -> bool {
        self.living().all(|member| matches!(member.phase, Phase::Done))
    }

    fn state(&self) -> String {
        let of = |member: &Member| {
            let phase = match &member.phase {
                Phase::Operation(operation) => format!("{operation:?}"),
                Phase::Agreeing(_) => "agreeing".into(),
                Phase::Shrinking(_) => "shrinking".into(),
                Phase::Done => "done".into(),
            };
            format!("rank {} in round {}: {phase}", member.rank.0, member.round)
        };
        self.living().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Kills a rank, but not the last one.
    fn kill(&mut self) {
        let victim = self.rng.below(self.ranks.len() as u64) as u32;
        let living = self.ranks.iter().flatten().count();
        if living < 2 || self.is_over() || self.ranks[victim as usize].take().is_none() {
            return;
        }
        self.net.note(format!("rank {victim} is killed"));
        self.net.kill(victim);
        self.summary.killed += 1;
        for whom in 0..self.ranks.len() as u32 {
            self.notices.insert((self.net.now_ns() + self.rng.below(REPORT_NS), whom, victim));
        }
    }

    /// Polls some ranks in a random order. Returns the number of events.
    fn step(&mut self) -> Result<usize, String> {
        let (mut events, now) = (0, self.net.now_ns());
        while self.notices.first().is_some_and(|notice| notice.0 <= now) {
            let Some((_, whom, about)) = self.notices.pop_first() else { break };
            self.tell(whom, about)?;
            events += 1;
        }
        let first = self.rng.below(self.ranks.len() as u64) as usize;
        for at in 0..self.ranks.len() {
            let index = (first + at) % self.ranks.len();
            let Some(mut member) = self.ranks[index].take() else { continue };
            events += member.poll(now)?;
            for wanted in member.engine.wanted().collect::<Vec<_>>() {
                self.notices.insert((now + self.rng.below(REPORT_NS), member.rank.0, wanted.0));
            }
            let end = self.advance(&mut member, now);
            self.ranks[index] = Some(member);
            events += usize::from(end?);
        }
        Ok(events)
    }

    /// Gives a rank the address of another one, or reports that it is dead.
    fn tell(&mut self, whom: u32, about: u32) -> Result<(), String> {
        let is_alive = self.ranks[about as usize].is_some();
        let Some(listener) = &mut self.ranks[whom as usize] else { return Ok(()) };
        let incarnation = first_incarnation(&SECRET, WorldRank(about));
        let told = match is_alive {
            true => listener.engine.introduce(WorldRank(about), incarnation, self.net.address(about)),
            false => {
                let cause = Cause::Died("killed".into());
                listener.engine.peer_failed(WorldRank(about), Some(incarnation), cause)
            }
        };
        told.map_err(|error| format!("{error:?}"))
    }

    /// Takes the next step of a rank's program. Returns false if the rank waits.
    fn advance(&mut self, member: &mut Member, now: u64) -> Result<bool, String> {
        let ended = match &mut member.phase {
            Phase::Done => return Ok(false),
            Phase::Operation(operation) => operation.has_ended(),
            Phase::Agreeing(_) | Phase::Shrinking(_) => true,
        };
        if !ended {
            return Ok(false);
        }
        let place = (member.context, member.begun);
        match std::mem::replace(&mut member.phase, Phase::Done) {
            Phase::Operation(operation) => {
                let is_well = self.check(member, *operation)?;
                if !is_well {
                    self.net.note(format!("rank {} revokes", member.rank.0));
                    member.engine.revoke(Time::from_nanos(now), member.context);
                }
                member.begin_agree(if is_well { WELL } else { 0 }, now);
            }
            Phase::Agreeing(id) => match member.engine.agreement(id) {
                Some(Progress::Decided(decision)) => {
                    let known = self.decisions.entry(place).or_insert_with(|| decision.clone());
                    require(*known == decision, || format!("{place:?}: {known:?} and {decision:?}"))?;
                    let is_well = decision.flags & WELL != 0 && decision.failed.is_empty();
                    let shrinks = SplitMix64::new(self.seed ^ member.round).below(5) == 0;
                    match (is_well, member.round < self.rounds) {
                        (true, true) if !shrinks => member.begin_round(self.seed, now),
                        (true, false) => self.net.note(format!("rank {} is done", member.rank.0)),
                        _ => member.begin_shrink(now),
                    }
                }
                progress => return member.goes_on(progress, Phase::Agreeing(id)),
            },
            Phase::Shrinking(id) => match member.engine.agreement(id) {
                Some(Progress::Ended(Ok(Some(agreed)))) => {
                    let known = self.shrunk.entry(place).or_insert_with(|| agreed.clone());
                    require(*known == agreed, || format!("{place:?}: {known:?} and {agreed:?}"))?;
                    self.summary.created.comms += 1;
                    member.replace(agreed, now);
                    member.begin_round(self.seed, now);
                }
                progress => return member.goes_on(progress, Phase::Shrinking(id)),
            },
            Phase::Done => unreachable!("a rank that is done takes no step"),
        }
        Ok(true)
    }

    /// Checks the result of an operation. Returns false if it failed for a permitted reason.
    fn check(&mut self, member: &Member, mut operation: Collective<OwnedBuffers>) -> Result<bool, String> {
        let result = operation.take_result().expect("it has ended");
        let buffers = operation.into_buffers();
        let died = |rank: &WorldRank| self.ranks[rank.index()].is_none() && *rank != member.rank;
        match result {
            Ok(()) => {
                self.summary.received += 1;
                let call = member.call(self.seed);
                let found = buffers.slices()[1].as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
                let (found, expected): (Vec<_>, _) = (found.collect(), call.expected());
                require(found.starts_with(&expected), || {
                    let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
                    format!("rank {}: element {wrong:?} is wrong after {:?}", member.rank.0, call.plan)
                })?;
                Ok(true)
            }
            Err(Failed::Error(Error::Revoked)) => Ok(false),
            // A member that has closed the communicator has shrunk it, and so has revoked it or seen a failure.
            Err(Failed::Error(Error::PeerFailed { rank, .. })) if died(&rank) => Ok(false),
            Err(failed) => Err(format!("rank {}: {failed:?}", member.rank.0)),
        }
    }

    /// Moves the clock to the next event, or by a step if the ranks have just had events: polls may have left others in
    /// the ports, which must not wait for a timer. Returns false if there is no next event.
    fn pass_time(&mut self, had_events: bool) -> bool {
        let now = self.net.now_ns();
        let due = |member: &Member| {
            let due = member.engine.due().as_nanos();
            (due > now && due != NEVER).then_some(due)
        };
        let due = if self.is_over() { None } else { self.living().filter_map(due).min() };
        let notice = self.notices.first().map(|notice| notice.0.max(now));
        let next = [self.net.next_ns(), due, notice].into_iter().flatten().min();
        let latest = if had_events { now + STEP_NS } else { u64::MAX };
        next.inspect(|&next| self.net.advance_to(next.min(latest))).is_some()
    }

    /// Checks that the living ranks are together, and that nothing is left.
    fn check_rest(&self) -> Result<(), String> {
        let living: Vec<_> = self.ranks.iter().flatten().collect();
        for member in &living {
            member.engine.check_invariants();
            let is_same = member.context == living[0].context && member.group == living[0].group;
            require(is_same, || format!("rank {} is in another communicator", member.rank.0))?;
            require(member.group.contains(member.rank), || format!("rank {} is outside", member.rank.0))?;
        }
        Ok(())
    }
}

impl Member {
    fn control(&self) -> u32 {
        if self.context == 1 { 0 } else { self.context + 1 }
    }

    fn poll(&mut self, now: u64) -> Result<usize, String> {
        let now = Time::from_nanos(now);
        let events = match &mut self.phase {
            Phase::Operation(operation) => {
                let events = self.engine.poll(now, &mut **operation);
                operation.advance(&mut self.engine);
                if events == Ok(0) {
                    operation.attend(&mut self.engine);
                }
                events
            }
            _ => self.engine.poll(now, &mut ()),
        };
        events.map_err(|error| format!("{error:?}"))
    }

    /// Returns the collective call of the present round.
    fn call(&self, seed: u64) -> RoundCall {
        RoundCall::new(seed, self.round, self.context, &self.group, self.rank)
    }

    fn begin_round(&mut self, seed: u64, now: u64) {
        self.round += 1;
        let round = self.call(seed);
        let (plan, place, reduce) = (&round.plan, round.at, calls::operation(round.keeps_order()));
        let [input, output] = round.buffers();
        let buffers = OwnedBuffers {
            lens: [input.len() * ELEMENT, output.len() * ELEMENT],
            output: Memory::new(output),
            scratch: Memory::new(vec![0_u64; plan.scratch(place)]),
            input: Memory::new(input),
            reduce: Arc::new(move |from: &[u8], into: &mut [u8]| {
                for (from, into) in from.as_chunks().0.iter().zip(into.as_chunks_mut().0) {
                    *into = reduce(u64::from_ne_bytes(*from), u64::from_ne_bytes(*into)).to_ne_bytes();
                }
            }),
            layouts: None,
        };
        let call = Call {
            plan,
            group: self.group.clone(),
            context: self.control(),
            series: samite_coll::Series::Program,
            number: self.operations,
            element: ELEMENT,
            deadline: Time::NEVER,
            check: None,
            checked_ends: self.checked_ends,
        };
        self.operations += 1;
        let now = Time::from_nanos(now);
        let operation = Collective::begin(&mut self.engine, now, call, self.rank, buffers);
        self.checked_ends = operation.checked_ends();
        self.phase = Phase::Operation(Box::new(operation));
    }

    fn begin_agree(&mut self, flags: u64, now: u64) {
        self.begun += 1;
        let (now, control, group) = (Time::from_nanos(now), self.control(), self.group.clone());
        self.phase = Phase::Agreeing(self.engine.begin_agree(now, control, group, flags, Time::NEVER));
    }

    fn begin_shrink(&mut self, now: u64) {
        self.begun += 1;
        let (now, control, group) = (Time::from_nanos(now), self.control(), self.group.clone());
        self.phase = Phase::Shrinking(self.engine.begin_shrink(now, control, group, Time::NEVER));
    }

    /// Puts the phase of an agreement back that has not ended. Returns false: the rank waits.
    fn goes_on(&mut self, progress: Option<Progress>, phase: Phase) -> Result<bool, String> {
        self.phase = phase;
        match progress {
            Some(Progress::Awaits { .. }) => Ok(false),
            other => Err(format!("rank {}: an agreement ended with {other:?}", self.rank.0)),
        }
    }

    /// Continues in a new communicator, and closes the present one.
    fn replace(&mut self, agreed: Agreed, now: u64) {
        if self.context > 1 {
            self.engine.close_contexts(Time::from_nanos(now), self.context);
        }
        (self.context, self.group) = (agreed.context, agreed.members);
        (self.begun, self.operations, self.checked_ends) = (0, 0, None);
    }
}
