//! The model: two vectors, searched from the front.

use samite_matching::{Envelope, Pattern, Purged, Source};

/// A matcher that searches lists from the front. The test numbers all items, and the number is an item's payload.
#[derive(Debug, Default)]
pub(crate) struct Naive {
    pub(crate) posted: Vec<(Pattern, u32)>,
    pub(crate) unexpected: Vec<(Envelope, u32)>,
}

impl Naive {
    /// Returns the receive that the message goes to.
    pub(crate) fn match_posted(&self, envelope: &Envelope) -> Option<usize> {
        self.posted.iter().position(|(pattern, _)| pattern.matches(envelope))
    }

    /// Returns the message that the receive gets.
    pub(crate) fn match_unexpected(&self, pattern: &Pattern) -> Option<usize> {
        self.unexpected.iter().position(|(envelope, _)| pattern.matches(envelope))
    }

    /// Returns the message to send first to a receiver with these receives, and the index of the receive that it
    /// matches.
    pub(crate) fn select_send(&self, patterns: &[Pattern]) -> Option<(u32, usize)> {
        patterns.iter().enumerate().find_map(|(index, pattern)| {
            self.match_unexpected(pattern).map(|message| (self.unexpected[message].1, index))
        })
    }

    pub(crate) fn purge_source(&mut self, source: u32) -> Vec<Purged<u32, u32>> {
        if source == u32::MAX {
            return Vec::new();
        }
        self.purge(|pattern| pattern.source == Source::rank(source), |envelope| envelope.source == source)
    }

    pub(crate) fn purge_context(&mut self, context: u32) -> Vec<Purged<u32, u32>> {
        self.purge(|pattern| pattern.context == context, |envelope| envelope.context == context)
    }

    fn purge(
        &mut self,
        of_receive: impl Fn(&Pattern) -> bool,
        of_message: impl Fn(&Envelope) -> bool,
    ) -> Vec<Purged<u32, u32>> {
        let posted = self.posted.extract_if(.., |(pattern, _)| of_receive(pattern));
        let mut purged: Vec<_> = posted.map(|(pattern, number)| Purged::Posted(pattern, number)).collect();
        let unexpected = self.unexpected.extract_if(.., |(envelope, _)| of_message(envelope));
        purged.extend(unexpected.map(|(envelope, number)| Purged::Unexpected(envelope, number)));
        purged
    }
}
