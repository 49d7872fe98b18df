//! Messages through the public crate.

use samite::{Rank, World};

use crate::loops::Messages;
use crate::measure::EndError;

/// A rank of a job.
#[derive(Debug)]
pub(crate) struct Samite {
    world: World,
    /// The transport to the next rank, read while that rank is connected.
    transport: String,
}

impl Samite {
    /// Returns this rank's end, after the rank has exchanged messages with its neighbours.
    ///
    /// # Errors
    /// The neighbours are unreachable.
    pub(crate) fn new(world: World) -> Result<Self, EndError> {
        let (rank, size) = (world.comm().rank(), world.comm().size());
        let next = (rank.0 + 1) % size;
        world.comm().sendrecv(
            &[0_u8; 0],
            Rank(next),
            0,
            &mut [0_u8; 0],
            Rank((rank.0 + size - 1) % size),
            0,
        )?;
        let transport = world.comm().transport(Rank(next)).unwrap_or_default();
        Ok(Self { world, transport })
    }
}

impl Messages for Samite {
    fn rank(&self) -> u32 {
        self.world.comm().rank().0
    }

    fn size(&self) -> u32 {
        self.world.comm().size()
    }

    fn transport(&self) -> String {
        self.transport.clone()
    }

    #[inline]
    fn send(&mut self, to: u32, tag: u64, data: &[u8]) -> Result<(), EndError> {
        Ok(self.world.comm().send(data, Rank(to), tag)?)
    }

    #[inline]
    fn recv(&mut self, from: u32, tag: u64, into: &mut [u8]) -> Result<(), EndError> {
        self.world.comm().recv(into, Rank(from), tag)?;
        Ok(())
    }

    fn send_many(&mut self, to: u32, tag: u64, data: &[u8], count: usize) -> Result<(), EndError> {
        Ok(self
            .world
            .comm()
            .scope(|scope| (0..count).try_for_each(|_| scope.isend(data, Rank(to), tag).map(drop)))?)
    }

    fn recv_many(&mut self, from: u32, tag: u64, into: &mut [Vec<u8>]) -> Result<(), EndError> {
        Ok(self.world.comm().scope(|scope| {
            into.iter_mut().try_for_each(|buffer| scope.irecv(buffer, Rank(from), tag).map(drop))
        })?)
    }

    fn exchange(&mut self, tag: u64, data: &[u8], into: &mut [Vec<u8>]) -> Result<(), EndError> {
        let (rank, size) = (self.rank(), self.size());
        let reach = into.len() as u32;
        Ok(self.world.comm().scope(|scope| {
            for (distance, buffer) in (1..).zip(into) {
                scope.irecv(buffer, Rank((rank + size - distance) % size), tag)?;
            }
            (1..=reach)
                .try_for_each(|distance| scope.isend(data, Rank((rank + distance) % size), tag).map(drop))
        })?)
    }
}
