//! The experiment of (Zounmevo 2014, section 4.6.2): one queue is filled, then searched until it is empty.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};
use samite_matching::{
    Arrival, Config, Counting, Envelope, Matcher, Memory, Meter, Pattern, Posting, Stats, Structure,
};

use crate::callgrind::counted;

/// The queue to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Receives are posted, then messages arrive (PRQ).
    Posted,
    /// Messages arrive, then receives are posted (UMQ).
    Unexpected,
}

/// The order in which the queue is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The order of insertion. A list finds each item at the head of the list.
    Forward,
    /// The reverse of the order of insertion. A list visits all its items to find an item.
    Reverse,
    /// An order without locality. The number of items in the order must be a power of two.
    Scattered,
}

/// A cell of the experiments: the dimensions of a queue. The queue is filled by context, then rank, then tag; it is
/// emptied by rank, then context (figure 4.16).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// The filled queue.
    pub(crate) queue: Queue,
    /// The number of ranks in each context.
    pub(crate) ranks: u32,
    /// The number of ranks, from the first, that have items in the queue; by default all.
    pub(crate) filled: u32,
    /// The number of items of each rank in each context, each with its own tag.
    pub(crate) tags: u64,
    /// The percentage of ranks whose receives are from any source. These receives have distinct tags, so each of them
    /// matches only its own message.
    pub(crate) any_source: u32,
    /// The number of contexts.
    pub(crate) contexts: u32,
    /// The order of ranks and tags.
    pub(crate) ranks_in: Direction,
    /// The order of contexts within a rank.
    pub(crate) contexts_in: Direction,
}

impl Workload {
    /// Returns a workload with one context and no wildcards.
    pub(crate) const fn new(queue: Queue, ranks: u32, tags: u64, ranks_in: Direction) -> Self {
        Self {
            queue,
            ranks,
            filled: u32::MAX,
            tags,
            any_source: 0,
            contexts: 1,
            ranks_in,
            contexts_in: Direction::Forward,
        }
    }

    /// Returns the name of the workload, without its size.
    pub(crate) fn name(&self) -> String {
        let Self { queue, tags, any_source, contexts, ranks_in, contexts_in, .. } = self;
        let contexts_in = if *contexts > 1 { format!(", contexts {contexts_in:?}") } else { String::new() };
        let name = format!(
            "{queue:?} queue {ranks_in:?}, {tags} items a rank, {any_source} % any source, contexts {contexts}{contexts_in}"
        );
        name.to_lowercase()
    }

    /// Returns the number of ranks with items in the queue.
    pub(crate) fn used(&self) -> u32 {
        self.filled.min(self.ranks)
    }

    /// Returns the number of queued items.
    pub(crate) fn items(&self) -> usize {
        self.used() as usize * self.tags as usize * self.contexts as usize
    }

    /// Returns the nanoseconds of a match on structure `S`. The queue is filled and emptied until `at_least` has
    /// passed. The result is the mean of the middle half of the measured times. Leaving out the extremes excludes
    /// interruptions, and the mean evens out the resolution of the clock, whose ticks are as long as a match. If
    /// `matches_max` is less than the number of items, only that many matches are made, spread evenly over the order,
    /// and the remaining items are removed.
    pub(crate) fn time<S: Structure>(&self, matches_max: usize, at_least: Duration) -> f64 {
        let mut matcher: Matcher<u64, u64, S> = self.matcher();
        let clock = Clock::new(self.items());
        let mut round = || {
            self.fill(&mut matcher);
            let full = clock.read();
            let matches = self.empty(&mut matcher, matches_max);
            let time = clock.since(full).as_nanos() as f64 / matches as f64;
            self.clear(&mut matcher);
            time
        };
        // The first round is a warm-up: memory comes from the kernel, and caches fill.
        round();
        let (begin, mut times) = (Instant::now(), Vec::new());
        while times.is_empty() || begin.elapsed() < at_least {
            times.push(round());
        }
        mean_of_middle(times)
    }

    /// Fills the queue of a counting matcher and empties it. Returns the memory of the full queue.
    pub(crate) fn count<S: Structure>(&self, matches_max: usize) -> (Memory, Stats) {
        let mut matcher: Matcher<u64, u64, S, Counting> = self.matcher();
        self.fill(&mut matcher);
        let memory = matcher.memory();
        self.empty(&mut matcher, matches_max);
        (memory, matcher.stats())
    }

    /// Returns the memory of the full queue.
    pub(crate) fn memory<S: Structure>(&self) -> Memory {
        let mut matcher: Matcher<u64, u64, S> = self.matcher();
        self.fill(&mut matcher);
        matcher.memory()
    }

    /// Runs `matches` matches, each within [`counted`]. Calls `before_each` before each of them.
    pub(crate) fn touch<S: Structure>(&self, matches: usize, before_each: &dyn Fn()) {
        let mut matcher: Matcher<u64, u64, S> = self.matcher();
        self.fill(&mut matcher);
        for sample in 0..matches {
            before_each();
            counted(|| self.take_sample(&mut matcher, sample, matches));
        }
    }

    fn matcher<S: Structure, M: Meter>(&self) -> Matcher<u64, u64, S, M> {
        Matcher::new(&Config { ranks: self.ranks, ..Config::default() })
    }

    /// Removes the remaining items.
    fn clear<S: Structure, M: Meter>(&self, matcher: &mut Matcher<u64, u64, S, M>) {
        if matcher.posted_len() + matcher.unexpected_len() > 0 {
            for context in 0..self.contexts {
                matcher.purge_context(context, |_| ());
            }
        }
    }

    fn fill<S: Structure, M: Meter>(&self, matcher: &mut Matcher<u64, u64, S, M>) {
        for context in 0..self.contexts {
            for rank in 0..self.used() {
                for tag in 0..self.tags {
                    let (envelope, pattern) = self.pair(context, rank, tag);
                    match self.queue {
                        Queue::Posted => assert!(matches!(matcher.post(pattern, tag), Posting::Queued(_))),
                        Queue::Unexpected => {
                            assert!(matches!(matcher.arrive(envelope, || tag), Arrival::Queued(_)));
                        }
                    }
                }
            }
        }
    }

    fn empty<S: Structure, M: Meter>(
        &self,
        matcher: &mut Matcher<u64, u64, S, M>,
        matches_max: usize,
    ) -> usize {
        let items = self.items();
        if matches_max >= items {
            for rank in self.ranks_in.of(u64::from(self.used())) {
                for context in self.contexts_in.of(u64::from(self.contexts)) {
                    for tag in self.ranks_in.of(self.tags) {
                        self.take(matcher, context as u32, rank as u32, tag);
                    }
                }
            }
            return items;
        }
        for sample in 0..matches_max {
            self.take_sample(matcher, sample, matches_max);
        }
        matches_max
    }

    /// Makes match number `sample` of `of` matches, which are spread evenly over the order.
    fn take_sample<S: Structure, M: Meter>(
        &self,
        matcher: &mut Matcher<u64, u64, S, M>,
        sample: usize,
        of: usize,
    ) {
        let at = (self.items() as u128 * sample as u128 / of as u128) as u64;
        let (of_rank, tag) = (at / self.tags, at % self.tags);
        let (rank, context) = (of_rank / u64::from(self.contexts), of_rank % u64::from(self.contexts));
        let rank = self.ranks_in.at(rank, u64::from(self.used()));
        let context = self.contexts_in.at(context, u64::from(self.contexts));
        self.take(matcher, context as u32, rank as u32, self.ranks_in.at(tag, self.tags));
    }

    fn take<S: Structure, M: Meter>(
        &self,
        matcher: &mut Matcher<u64, u64, S, M>,
        context: u32,
        rank: u32,
        tag: u64,
    ) {
        let (envelope, pattern) = self.pair(context, rank, tag);
        let matched = match self.queue {
            Queue::Posted => matches!(matcher.arrive(envelope, || tag), Arrival::Matched(_)),
            Queue::Unexpected => matches!(matcher.post(pattern, tag), Posting::Matched { .. }),
        };
        assert!(matched, "no match for {envelope:?}");
    }

    /// Returns a message and its receive.
    fn pair(&self, context: u32, rank: u32, tag: u64) -> (Envelope, Pattern) {
        let percent = |rank: u32| u64::from(rank) * u64::from(self.any_source) / 100;
        if self.any_source > 0 && percent(rank) != percent(rank + 1) {
            let tag = self.tags + tag;
            (Envelope::new(context, rank, tag), Pattern::exact(context, rank, tag).any_source())
        } else {
            (Envelope::new(context, rank, tag), Pattern::exact(context, rank, tag))
        }
    }
}

impl Direction {
    fn at(self, index: u64, of: u64) -> u64 {
        match self {
            Self::Forward => index,
            Self::Reverse => of - 1 - index,
            Self::Scattered => index.wrapping_mul(0x9e37_79b1) % of,
        }
    }

    fn of(self, count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |index| self.at(index, count))
    }
}

/// Returns the mean of the middle half of the samples.
fn mean_of_middle(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    let outer = samples.len() / 4;
    let middle = &samples[outer..samples.len() - outer];
    middle.iter().sum::<f64>() / middle.len() as f64
}

/// Returns the nanoseconds of an insertion and the match that follows it, in an otherwise empty queue.
pub(crate) fn time_pairs<S: Structure>(queue: Queue) -> f64 {
    const PAIRS: u64 = 100_000;
    let mut matcher: Matcher<u64, u64, S> = Matcher::new(&Config::default());
    let clock = Clock::new(PAIRS as usize);
    let begin = clock.read();
    for number in 0..PAIRS {
        let envelope = std::hint::black_box(Envelope::new(0, 3, 7));
        let pattern = std::hint::black_box(Pattern::exact(0, 3, 7));
        let matched = match queue {
            Queue::Posted => {
                matches!(matcher.post(pattern, number), Posting::Queued(_))
                    && matches!(matcher.arrive(envelope, || number), Arrival::Matched(_))
            }
            Queue::Unexpected => {
                matches!(matcher.arrive(envelope, || number), Arrival::Queued(_))
                    && matches!(matcher.post(pattern, number), Posting::Matched { .. })
            }
        };
        assert!(matched, "{envelope:?} and {pattern:?} match");
    }
    clock.since(begin).as_nanos() as f64 / PAIRS as f64
}

/// The clock that measures a phase of matches. It subtracts the cost of reading the clock.
///
/// A long phase is measured in the thread's processor time, which excludes other load on the machine. A short phase is
/// measured by the wall clock, which is cheap to read: other load disturbs only few of many short phases.
struct Clock {
    is_processor_time: bool,
    overhead: Duration,
}

impl Clock {
    /// The minimum number of items of a long phase.
    const LONG: usize = 2048;

    fn new(items: usize) -> Self {
        let mut clock = Self { is_processor_time: items >= Self::LONG, overhead: Duration::ZERO };
        let readings = (0..256).map(|_| clock.since(clock.read()));
        clock.overhead = readings.min().unwrap_or_default();
        clock
    }

    fn read(&self) -> Duration {
        let id = if self.is_processor_time { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
        let Timespec { tv_sec, tv_nsec } = clock_gettime(id);
        Duration::new(tv_sec as u64, tv_nsec as u32)
    }

    fn since(&self, begin: Duration) -> Duration {
        (self.read() - begin).saturating_sub(self.overhead)
    }
}
