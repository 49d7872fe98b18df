//! Runs operations on a matcher and on the model, and compares every result.

use samite_matching::{
    Arrival, Config, Envelope, Matcher, Pattern, PostedId, Posting, Purged, Source, Structure, UnexpectedId,
};

use crate::naive::Naive;
use crate::operation::Operation;

pub(crate) struct Replay<S: Structure> {
    matcher: Matcher<u32, u32, S>,
    naive: Naive,
    config: Config,
    bytes_empty: usize,
    /// The handle and number of every receive that was ever queued. Most handles are stale.
    posted_ids: Vec<(PostedId, u32)>,
    /// The handle and number of every message that was ever queued. Most handles are stale.
    unexpected_ids: Vec<(UnexpectedId, u32)>,
    numbers: std::ops::RangeFrom<u32>,
}

impl<S: Structure> Replay<S> {
    pub(crate) fn new(config: Config) -> Self {
        let matcher = Matcher::new(&config);
        Self {
            bytes_empty: matcher.memory().in_use(),
            matcher,
            naive: Naive::default(),
            config,
            posted_ids: Vec::new(),
            unexpected_ids: Vec::new(),
            numbers: 0..,
        }
    }

    pub(crate) fn step(&mut self, operation: &Operation) {
        match *operation {
            Operation::Arrive(envelope) => self.arrive(envelope),
            Operation::Post(pattern) => self.post(pattern),
            Operation::ArriveMany { first, count, rank_step, tag_step } => {
                for i in 0..count {
                    let source = first.source.wrapping_add(i.wrapping_mul(rank_step));
                    let tag = first.tag.wrapping_add(u64::from(i).wrapping_mul(tag_step));
                    self.arrive(Envelope { source, tag, ..first });
                }
            }
            Operation::PostMany { first, count, rank_step, tag_step } => {
                for i in 0..count {
                    let step = i.wrapping_mul(rank_step);
                    let source = first
                        .source
                        .as_rank()
                        .map_or(Source::ANY, |rank| Source::rank(rank.wrapping_add(step)));
                    let tag = first.tag.wrapping_add(u64::from(i).wrapping_mul(tag_step));
                    self.post(Pattern { source, tag, ..first });
                }
            }
            Operation::Take { pattern, times } => (0..times).for_each(|_| self.take(pattern)),
            Operation::Probe(pattern) => self.probe(pattern),
            Operation::SelectSend(ref patterns) => {
                let selected = self.matcher.select_send(patterns);
                let selected = selected.map(|(id, index)| (*self.matcher.unexpected(id).unwrap().1, index));
                assert_eq!(selected, self.naive.select_send(patterns));
            }
            Operation::Cancel(index) => {
                if !self.posted_ids.is_empty() {
                    self.cancel(index.index(self.posted_ids.len()));
                }
            }
            Operation::Remove(index) => {
                if !self.unexpected_ids.is_empty() {
                    self.remove(index.index(self.unexpected_ids.len()));
                }
            }
            Operation::PurgeSource(source) => {
                self.visit_source(source);
                let mut purged = Vec::new();
                self.matcher.purge_source(source, |item| purged.push(item));
                assert_eq!(by_context(purged), by_context(self.naive.purge_source(source)));
            }
            Operation::PurgeContext(context) => {
                let mut purged = Vec::new();
                self.matcher.purge_context(context, |item| purged.push(item));
                assert_eq!(purged, self.naive.purge_context(context));
            }
            Operation::VisitAnySource => self.visit_any_source(),
        }
        assert_eq!(self.matcher.posted_len(), self.naive.posted.len());
        assert_eq!(self.matcher.unexpected_len(), self.naive.unexpected.len());
        self.check_memory();
    }

    /// Drains both queues and checks that no memory stays in use.
    pub(crate) fn finish(mut self) {
        for context in [0, 1, u32::MAX] {
            while self.naive.match_unexpected(&Pattern::any(context)).is_some() {
                self.take(Pattern::any(context));
            }
        }
        for index in (0..self.posted_ids.len()).rev() {
            self.cancel(index);
        }
        for context in [0, 1, u32::MAX] {
            self.matcher.purge_context(context, |item| panic!("{item:?} was taken out"));
        }
        assert_eq!((self.matcher.posted_len(), self.matcher.unexpected_len()), (0, 0));
        assert_eq!(self.matcher.memory().in_use(), self.bytes_empty);
    }

    fn arrive(&mut self, envelope: Envelope) {
        let number = self.numbers.next().unwrap();
        let expected = self.naive.match_posted(&envelope).map(|index| self.naive.posted.remove(index).1);
        let mut made = false;
        let arrival = self.matcher.arrive(envelope, || {
            made = true;
            number
        });
        assert_eq!(made, matches!(arrival, Arrival::Queued(_)));
        match arrival {
            Arrival::Matched(receive) => assert_eq!(Some(receive), expected),
            Arrival::Queued(id) => {
                assert_eq!(expected, None);
                self.naive.unexpected.push((envelope, number));
                self.unexpected_ids.push((id, number));
            }
            Arrival::Refused => {
                assert_eq!(expected, None);
                self.check_refusal();
            }
        }
    }

    fn post(&mut self, pattern: Pattern) {
        let number = self.numbers.next().unwrap();
        let expected = self.naive.match_unexpected(&pattern).map(|index| self.naive.unexpected.remove(index));
        match self.matcher.post(pattern, number) {
            Posting::Matched { envelope, unexpected, posted } => {
                assert_eq!(posted, number);
                assert_eq!(Some((envelope, unexpected)), expected);
            }
            Posting::Queued(id) => {
                assert_eq!(expected, None);
                self.naive.posted.push((pattern, number));
                self.posted_ids.push((id, number));
            }
            Posting::Refused(posted) => {
                assert_eq!((expected, posted), (None, number));
                self.check_refusal();
            }
        }
    }

    fn take(&mut self, pattern: Pattern) {
        let expected = self.naive.match_unexpected(&pattern).map(|index| self.naive.unexpected.remove(index));
        assert_eq!(self.matcher.take(&pattern), expected);
    }

    fn probe(&mut self, pattern: Pattern) {
        let expected = self.naive.match_unexpected(&pattern).map(|index| self.naive.unexpected[index]);
        let probed = self.matcher.probe(&pattern).map(|(id, envelope, &number)| (id, envelope, number));
        assert_eq!(probed.map(|(_, envelope, number)| (envelope, number)), expected);
        if let Some((id, envelope, number)) = probed {
            assert_eq!(self.matcher.unexpected(id), Some((envelope, &number)));
        }
    }

    fn cancel(&mut self, index: usize) {
        let (id, number) = self.posted_ids[index];
        let position = self.naive.posted.iter().position(|&(_, posted)| posted == number);
        let expected = position.map(|position| self.naive.posted.remove(position));
        assert_eq!(self.matcher.posted(id).map(|(pattern, &number)| (pattern, number)), expected);
        assert_eq!(self.matcher.posted_mut(id).copied(), expected.map(|(_, number)| number));
        assert_eq!(self.matcher.cancel(id), expected.map(|(_, number)| number));
        assert_eq!(self.matcher.cancel(id), None);
    }

    fn remove(&mut self, index: usize) {
        let (id, number) = self.unexpected_ids[index];
        let position = self.naive.unexpected.iter().position(|&(_, queued)| queued == number);
        let expected = position.map(|position| self.naive.unexpected.remove(position));
        assert_eq!(self.matcher.unexpected_mut(id).copied(), expected.map(|(_, number)| number));
        assert_eq!(self.matcher.remove(id), expected);
        assert_eq!(self.matcher.remove(id), None);
    }

    fn visit_any_source(&mut self) {
        let mut visited = Vec::new();
        self.matcher.visit_any_source(|id, pattern, &mut number| visited.push((id, pattern, number)));
        for &(id, pattern, number) in &visited {
            assert_eq!(self.matcher.posted(id), Some((pattern, &number)));
        }
        let mut visited: Vec<_> = visited.into_iter().map(|(_, pattern, number)| (pattern, number)).collect();
        visited.sort_by_key(|(pattern, _)| pattern.context);
        let mut expected = self.naive.posted.clone();
        expected.retain(|(pattern, _)| pattern.source.is_any());
        expected.sort_by_key(|(pattern, _)| pattern.context);
        assert_eq!(visited, expected);
        let contexts: std::collections::BTreeSet<_> =
            self.naive.posted.iter().map(|(pattern, _)| pattern.context).chain([0, 1, u32::MAX]).collect();
        for context in contexts {
            let mut visited = Vec::new();
            self.matcher.visit_posted(context, |id, pattern, &number| {
                assert_eq!(self.matcher.posted(id), Some((pattern, &number)));
                visited.push((pattern, number));
            });
            let mut expected = self.naive.posted.clone();
            expected.retain(|(pattern, _)| pattern.context == context);
            assert_eq!(visited, expected);
        }
    }

    fn visit_source(&mut self, source: u32) {
        let mut visited = Vec::new();
        self.matcher.visit_source(source, |id, envelope, &mut number| visited.push((id, envelope, number)));
        for &(id, envelope, number) in &visited {
            assert_eq!(self.matcher.unexpected(id), Some((envelope, &number)));
        }
        let mut visited: Vec<_> =
            visited.into_iter().map(|(_, envelope, number)| (envelope, number)).collect();
        visited.sort_by_key(|(envelope, _)| envelope.context);
        let mut expected = self.naive.unexpected.clone();
        expected.retain(|(envelope, _)| envelope.source == source && source != u32::MAX);
        expected.sort_by_key(|(envelope, _)| envelope.context);
        assert_eq!(visited, expected);
    }

    fn check_memory(&self) {
        let memory = self.matcher.memory();
        assert!(memory.in_use() <= memory.peak && memory.in_use() <= memory.reserved, "{memory:?}");
        if let Some(bytes_max) = self.config.bytes_max.filter(|&max| max >= self.bytes_empty) {
            assert!(memory.peak <= bytes_max, "{memory:?} exceeds {bytes_max}");
        }
    }

    /// Checks that an insertion is refused only near the limit: the memory in use, the entry, and the structure's
    /// memory for the entry must exceed the budget. In the worst case the structure replaces a table by a table of
    /// twice the size.
    fn check_refusal(&self) {
        let growth_max = 100 + 4096 + 40 * self.config.ranks as usize;
        let memory = self.matcher.memory();
        let bytes_max = self.config.bytes_max.expect("refused without a limit");
        assert!(2 * memory.in_use() + growth_max > bytes_max, "refused at {memory:?} of {bytes_max}");
    }
}

/// Groups purged items by context, because a purge by source keeps the order only within a context.
fn by_context(mut purged: Vec<Purged<u32, u32>>) -> Vec<Purged<u32, u32>> {
    purged.sort_by_key(|item| match item {
        Purged::Posted(pattern, _) => (false, pattern.context),
        Purged::Unexpected(envelope, _) => (true, envelope.context),
    });
    purged
}
