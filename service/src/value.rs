//! Messages with values of any type that serde serializes, in postcard's format.

pub(crate) mod decode;

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use samite_fabric::Memory;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zerocopy::FromZeros;

pub use decode::DecodeError;

use crate::request::{Done, Failed};
use crate::select::{Destination, Source, Tag};
use crate::signature::signature_of_values;
use crate::{Comm, Error, Message, Request, RequestFuture, Status};

impl Comm {
    /// Serializes `value`, and sends the bytes as [`send`](Self::send) does. [`recv_value`](Self::recv_value),
    /// [`irecv_value`](Self::irecv_value) and [`Message::recv_value`](crate::Message::recv_value) receive it as a
    /// value, and calls that do not decode values receive it as bytes.
    ///
    /// The bytes are in [postcard's format](https://postcard.jamesmunns.com/wire-format), which is the same on all
    /// machines and contains no names of types or fields. It does not support types that need a self-describing format,
    /// such as `serde_json::Value`, enums with the attribute `untagged`, and fields with the attribute `flatten`.
    ///
    /// # Errors
    /// [`Error::Unencodable`]; the errors of [`send`](Self::send).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use std::collections::BTreeMap;
    ///
    /// use samite::Rank;
    ///
    /// #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    /// struct Job {
    ///     program: String,
    ///     variables: BTreeMap<String, f64>,
    /// }
    ///
    /// let job = Job { program: "heat".into(), variables: [("width".into(), 0.5)].into() };
    /// if comm.rank() == 0 {
    ///     comm.send_value(&job, Rank(1), 7)?;
    /// } else {
    ///     // Longer messages are refused.
    ///     let (received, status) = comm.recv_value::<Job>(10_000, Rank(0), 7)?;
    ///     assert_eq!((received, status.peer), (job, Rank(0)));
    /// }
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn send_value<T: Serialize + ?Sized>(
        &self,
        value: &T,
        to: impl Into<Destination>,
        tag: u64,
    ) -> Result<(), Error> {
        let call = "send_value";
        let bytes = self.handle_result(call, encode(value))?;
        let Some(to) = to.into().0 else { return self.handle_result(call, self.absent(tag).map(drop)) };
        match self.world_rank(to) {
            Ok(rank) => self.send_bytes(call, rank, tag, &bytes[..], signature_of_values),
            Err(error) => Err(self.handle_world_error(call, error)),
        }
    }

    /// Serializes `value`, and starts to send the bytes as [`isend`](Self::isend) does. The request returns the bytes.
    /// The value is not used any more when this returns.
    ///
    /// # Errors
    /// [`Error::Unencodable`]; the errors of [`isend`](Self::isend).
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// let other = samite::Rank(1 - comm.rank().0);
    /// let send = comm.isend_value("ready", other, 7)?;
    /// assert_eq!(comm.recv_value::<String>(100, other, 7)?.0, "ready");
    /// send.wait()?;
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn isend_value<T: Serialize + ?Sized>(
        &self,
        value: &T,
        to: impl Into<Destination>,
        tag: u64,
    ) -> Result<Request<Vec<u8>>, Error> {
        let bytes = self.handle_result("isend_value", encode(value))?;
        let signature = |_: &Memory| signature_of_values();
        self.start_send("isend_value", bytes, signature, to.into(), tag).map_err(Error::from)
    }

    /// Receives the first message that matches, of any length up to `max_bytes`, as a value that
    /// [`send_value`](Self::send_value) has sent.
    ///
    /// The message is [claimed](Self::claim) first, and memory is allocated for its length. A message that is longer
    /// than `max_bytes` is consumed without any memory for it. To decide when its length is known, use
    /// [`claim`](Self::claim) and [`Message::recv_value`].
    ///
    /// The bytes may be hostile. Each element of a list, and each entry of a map, counts as at least one byte of
    /// `max_bytes`, because some elements take no bytes in the message. So the value has at most `max_bytes` elements,
    /// and its size in memory is at most that number times the size of its largest element. The parts of a value may be
    /// nested 128 deep. Each struct, enum, option, list, tuple and map counts as one level.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the message is longer than `max_bytes`, [`Error::Undecodable`] if its bytes are not
    /// exactly one value of `T`; the message is consumed then. The errors of [`recv_vec`](Self::recv_vec). A receive
    /// from an absent source ends with [`Error::Undecodable`], unless the value of `T` takes no bytes.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// # let comm = world.comm();
    /// use samite::{Error, Rank, Source};
    ///
    /// if comm.rank() == 0 {
    ///     comm.send_value(&vec![1, 2, 3], Rank(1), 7)?;
    ///     comm.send(&[3u8, 1], Rank(1), 7)?;
    ///     comm.send_value(&"a".repeat(1000), Rank(1), 7)?;
    /// } else {
    ///     assert_eq!(comm.recv_value::<Vec<i32>>(100, Source::ANY, 7)?.0, [1, 2, 3]);
    ///     // The bytes announce a list of three elements, and contain one.
    ///     let error = comm.recv_value::<Vec<i32>>(100, Source::ANY, 7).unwrap_err();
    ///     assert!(matches!(error, Error::Undecodable { status, .. } if status.peer == Rank(0)));
    ///     let error = comm.recv_value::<String>(100, Source::ANY, 7).unwrap_err();
    ///     assert!(matches!(error, Error::Truncated { room: 100, .. }));
    /// }
    /// # Ok::<(), Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn recv_value<T: DeserializeOwned>(
        &self,
        max_bytes: usize,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<(T, Status), Error> {
        let call = "recv_value";
        let receive = |message: &mut Message| value_of(message, call, max_bytes);
        self.handle_result(call, self.find_and(call, from.into(), tag.into(), receive))
    }

    /// Starts to receive a value, whose message has at most `max_bytes` bytes, as [`recv_value`](Self::recv_value)
    /// does.
    ///
    /// `max_bytes` bytes are allocated before the message arrives. To allocate only the length of the message,
    /// [claim](Self::claim_async) it and use [`Message::irecv_value`]. Under the check `hints`, and with the hint
    /// [`exact_length`](crate::Hints::exact_length), the length of the message must be `max_bytes`.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if there is no memory for `max_bytes` bytes; the errors of [`irecv`](Self::irecv). The
    /// request ends with [`Error::Truncated`] or [`Error::Undecodable`] as [`recv_value`](Self::recv_value) does.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// let receive = comm.irecv_value::<(u32, String)>(100, comm.rank(), 7)?;
    /// comm.send_value(&(5u32, "five"), comm.rank(), 7)?;
    /// let (value, status) = receive.wait()?;
    /// assert_eq!((value, status.bytes), ((5, "five".to_owned()), 6));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn irecv_value<T: DeserializeOwned>(
        &self,
        max_bytes: usize,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<ValueRequest<T>, Error> {
        let call = "irecv_value";
        let buffer = self.handle_result(call, zeroed(max_bytes))?;
        let signature = |_: &Memory| signature_of_values();
        let request = self.post(call, buffer, signature, from.into(), tag.into())?;
        Ok(ValueRequest { request, max_bytes, value: PhantomData })
    }
}

impl Message {
    /// Receives the message as a value: see [`Comm::recv_value`].
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Undecodable`]; the errors of [`recv`](Self::recv). The message is consumed.
    ///
    /// ```
    /// # samite::local(1, |world| {
    /// # let comm = world.comm();
    /// comm.send_value(&Some('ß'), comm.rank(), 7)?;
    /// let message = comm.claim(samite::Source::ANY, 7)?;
    /// assert!(message.status().bytes < 10);
    /// assert_eq!(message.recv_value::<Option<char>>(10)?.0, Some('ß'));
    /// # Ok::<(), samite::Error>(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    pub fn recv_value<T: DeserializeOwned>(mut self, max_bytes: usize) -> Result<(T, Status), Error> {
        let received = value_of(&mut self, "Message::recv_value", max_bytes);
        self.comm.handle_result("Message::recv_value", received)
    }

    /// Starts to receive the message as a value, into memory of its length: see [`Comm::irecv_value`].
    ///
    /// # Errors
    /// [`Error::Truncated`] if the message is longer than `max_bytes`, [`Error::Exhausted`] if there is no memory for
    /// its length; the message is consumed then. [`Error::Closed`], [`Error::Forked`]. The request ends with
    /// [`Error::Undecodable`] if the bytes are not exactly one value of `T`.
    ///
    /// ```
    /// # async fn example(comm: &samite::Comm) -> Result<(), samite::Error> {
    /// let message = comm.claim_async(samite::Source::ANY, 7).await?;
    /// let (names, status) = message.irecv_value::<Vec<String>>(10_000)?.await?;
    /// println!("{} names from rank {}", names.len(), status.peer);
    /// # Ok(())
    /// # }
    /// ```
    pub fn irecv_value<T: DeserializeOwned>(self, max_bytes: usize) -> Result<ValueRequest<T>, Error> {
        let call = "Message::irecv_value";
        let buffer = limited(self.status(), max_bytes).and_then(|()| zeroed(self.status().bytes));
        let buffer = self.comm.handle_result(call, buffer)?;
        let request = self.start_recv(call, buffer, |_| signature_of_values())?;
        Ok(ValueRequest { request, max_bytes, value: PhantomData })
    }
}

/// A receive of a value that is under way: see [`Comm::irecv_value`]. It can be awaited. A request that is dropped is
/// cancelled if possible.
#[must_use = "a request that is dropped is cancelled"]
pub struct ValueRequest<T> {
    request: Request<Vec<u8>>,
    max_bytes: usize,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> ValueRequest<T> {
    /// Waits until the receive has ended.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Undecodable`]; the errors of [`Request::wait`].
    pub fn wait(self) -> Result<(T, Status), Error> {
        let call = "ValueRequest::wait";
        let comm = self.request.comm().clone();
        let done = self.request.wait_as(call);
        value_in(done, self.max_bytes, &comm, call)
    }

    /// Makes progress, and returns the result once the receive has ended; `None` while it is under way. The result is
    /// returned once, as by [`Request::test`].
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Undecodable`]; the errors of [`Request::test`].
    #[must_use = "a result is returned once"]
    pub fn test(&mut self) -> Option<Result<(T, Status), Error>> {
        let call = "ValueRequest::test";
        let done = self.request.test_as(call)?;
        Some(value_in(done, self.max_bytes, self.request.comm(), call))
    }
}

impl<T> ValueRequest<T> {
    /// Makes progress, and returns true if the receive has ended: see [`Request::is_finished`].
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.request.is_finished()
    }

    /// Cancels the receive, unless a message was matched: see [`Request::cancel`].
    pub fn cancel(&self) {
        self.request.cancel();
    }
}

impl<T> fmt::Debug for ValueRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, max_bytes, value: _ } = self;
        f.debug_struct("ValueRequest").field("request", request).field("max_bytes", max_bytes).finish()
    }
}

/// The future of a [`ValueRequest`], made by awaiting it: see [`RequestFuture`].
#[must_use = "a request that is dropped is cancelled"]
pub struct ValueFuture<T> {
    comm: Comm,
    future: RequestFuture<Vec<u8>>,
    max_bytes: usize,
    value: PhantomData<fn() -> T>,
}

impl<T> ValueFuture<T> {
    /// Cancels the receive, as [`ValueRequest::cancel`]; the future returns the result.
    pub fn cancel(&self) {
        self.future.cancel();
    }
}

impl<T: DeserializeOwned> IntoFuture for ValueRequest<T> {
    type Output = Result<(T, Status), Error>;
    type IntoFuture = ValueFuture<T>;

    fn into_future(self) -> ValueFuture<T> {
        let Self { request, max_bytes, value } = self;
        ValueFuture { comm: request.comm().clone(), future: request.into_future(), max_bytes, value }
    }
}

impl<T: DeserializeOwned> Future for ValueFuture<T> {
    type Output = Result<(T, Status), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = "ValueRequest::await";
        let Self { comm, future, max_bytes, value: _ } = self.get_mut();
        future.poll_as(call, context.waker()).map(|done| value_in(done, *max_bytes, comm, call))
    }
}

impl<T> fmt::Debug for ValueFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { future, max_bytes, .. } = self;
        f.debug_struct("ValueFuture").field("future", future).field("max_bytes", max_bytes).finish()
    }
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    postcard::to_allocvec(value)
        .map_err(|error| Error::Unencodable { value: type_name::<T>(), why: error.to_string() })
}

fn decode<T: DeserializeOwned>(bytes: &[u8], status: Status, max_bytes: usize) -> Result<(T, Status), Error> {
    match decode::decode(bytes, max_bytes) {
        Ok(value) => Ok((value, status)),
        Err(why) => Err(Error::Undecodable { status, value: type_name::<T>(), why: Box::new(why) }),
    }
}

/// Receives a claimed message as a value. Its errors are not reported to the error handler.
fn value_of<T: DeserializeOwned>(
    message: &mut Message,
    call: &'static str,
    max_bytes: usize,
) -> Result<(T, Status), Error> {
    limited(message.status(), max_bytes)?;
    let Done { buffer, status } = message.receive::<u8>(call, signature_of_values)?;
    decode(&buffer, status, max_bytes)
}

/// Returns the value in a received message, and reports an error to the error handler. The error of the receive itself
/// was reported before.
fn value_in<T: DeserializeOwned>(
    done: Result<Done<Vec<u8>>, Failed<Vec<u8>>>,
    max_bytes: usize,
    comm: &Comm,
    call: &'static str,
) -> Result<(T, Status), Error> {
    let Done { buffer, status } = done?;
    comm.handle_result(call, decode(&buffer[..status.bytes], status, max_bytes))
}

/// Checks the length of a message.
fn limited(status: Status, max_bytes: usize) -> Result<(), Error> {
    if status.bytes <= max_bytes { Ok(()) } else { Err(Error::Truncated { status, room: max_bytes }) }
}

/// Allocates zero pages, so pages that no data reaches take no memory.
fn zeroed(bytes: usize) -> Result<Vec<u8>, Error> {
    u8::new_vec_zeroed(bytes).map_err(|_| Error::Exhausted {
        what: "memory for the longest message of a value",
        hint: "lower the limit, or claim the message first".into(),
    })
}
