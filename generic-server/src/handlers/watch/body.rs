//! The body of a watch.
//!
//! It goes through: initial objects -> their bookmark -> events, with bookmarks in between -> end. It ends at its deadline, or
//! when the feed is over. Where objects are converted by a webhook, a piece waits for the answers that it needs.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use machinery::{ApiError, limits};
use storage::Revision;
use tokio::time::{Instant, Sleep};

use super::Beginning;
use super::convert::Answers;
use super::form::{Form, Subject};
use crate::cpu::{Pool, Turns};
use crate::registry::cache::{Change, ChangeKind, Entry, Feed};
use crate::registry::figures::{Scope, WatchFigures};
use crate::registry::list::Selection;
use crate::request::{BoxError, InitialSeat};

/// How often a watcher gets a bookmark, and how long before its end it gets the last one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Frames are joined up to this size: fewer, larger writes.
const JOIN: usize = 64 * 1024;

/// Where a watch is counted, and what it is of.
pub(super) struct Counted {
    pub(super) figures: Arc<WatchFigures>,
    /// When it was asked for.
    pub(super) asked: std::time::Instant,
    pub(super) scope: Scope,
}

pub(super) struct WatchBody {
    form: Form,
    selection: Selection,
    initial: std::vec::IntoIter<Arc<Entry>>,
    /// The bookmark after the initial objects is still to be sent; the revision that they are of.
    announce: Option<Revision>,
    feed: Feed,
    /// Events taken from the feed and not sent yet.
    taken: std::collections::VecDeque<Arc<Change>>,
    scratch: Vec<Arc<Change>>,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// A bookmark of this revision follows what was taken.
    bookmark: Option<Revision>,
    timer: Pin<Box<Sleep>>,
    /// Converted objects, where conversion goes through a webhook.
    answers: Option<Answers>,
    /// The next event describes the columns.
    headers: bool,
    /// Events are encoded rather than copied.
    encodes: bool,
    /// Where they are, many at once, or large ones, are encoded in turns with other long computations.
    turns: Option<Turns>,
    /// Given back when the initial objects and their bookmark have been sent.
    seat: Option<InitialSeat>,
    ended: bool,
    counted: Counted,
}

impl WatchBody {
    pub(super) fn new(
        form: Form,
        selection: Selection,
        beginning: Beginning,
        bookmarks: bool,
        deadline: Instant,
        counted: Counted,
    ) -> Self {
        let Beginning {
            initial,
            announce,
            feed,
        } = beginning;
        let mut body = WatchBody {
            headers: form.has_headers(),
            encodes: form.encodes(),
            turns: form.encodes().then(|| Turns::of_answer(Pool::shared())),
            answers: form.remote().cloned().map(Answers::new),
            form,
            selection,
            announce: announce.then(|| feed.after()),
            initial: initial.into_iter(),
            feed,
            taken: std::collections::VecDeque::new(),
            scratch: Vec::new(),
            deadline,
            next_bookmark: None,
            bookmark: None,
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            seat: None,
            ended: false,
            counted,
        };
        if bookmarks {
            body.schedule_bookmark();
        }
        body
    }

    /// With the seat of its request, where it begins with objects.
    pub(super) fn with_seat(self, seat: Option<InitialSeat>) -> Self {
        let begins = self.initial.len() > 0 || self.announce.is_some();
        WatchBody {
            seat: seat.filter(|_| begins),
            ..self
        }
    }

    /// A minute from now, or shortly before the end; not at all when that is past.
    fn schedule_bookmark(&mut self) {
        let now = Instant::now();
        let before_end = self.deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(now);
        self.next_bookmark = Some((now + BOOKMARK_EVERY).min(before_end)).filter(|at| *at > now);
        self.timer.as_mut().reset(
            self.next_bookmark
                .map_or(self.deadline, |at| at.min(self.deadline)),
        );
    }

    /// The initial objects that fit in a piece, and their bookmark after the last.
    fn initial_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.initial.len() == 0 && self.announce.is_none() {
            return Ok(None);
        }
        let mut piece = Vec::new();
        let mut worked = 0;
        let mut tally = self.counted.figures.tally();
        while piece.len() < JOIN && worked < limits::SLICE_BYTES {
            let Some(entry) = self.initial.as_slice().first() else {
                break;
            };
            let Some(subject) = subject(&mut self.answers, entry, entry.revision) else {
                // It is asked about before the next piece.
                break;
            };
            worked += entry.json.len();
            self.initial.next();
            let headers = std::mem::take(&mut self.headers);
            let before = piece.len();
            self.form
                .write_event(&mut piece, ChangeKind::Added, &subject, headers)?;
            tally.observe(piece.len() - before);
        }
        if self.initial.len() == 0
            && let Some(revision) = self.announce.take()
        {
            let headers = std::mem::take(&mut self.headers);
            let bookmark = self.form.bookmark(revision, true, headers)?;
            tally.observe(bookmark.len());
            piece.extend_from_slice(&bookmark);
            let Counted {
                figures,
                asked,
                scope,
            } = &self.counted;
            figures.initial_events_sent(*scope, asked.elapsed());
        }
        if self.initial.len() == 0 {
            self.seat = None;
        }
        self.counted.figures.sent(&tally);
        Ok(Some(piece.into()))
    }

    /// Whether the next piece takes long, where events have to be encoded.
    fn is_heavy(&self) -> bool {
        let mut bytes = 0;
        for change in &self.taken {
            let size = change.entry.json.len();
            if size >= limits::HEAVY_BYTES {
                return true;
            }
            bytes += size;
            if bytes >= limits::SLICE_BYTES {
                break;
            }
        }
        self.initial.len() > 0
    }

    /// The type and object of the event that a change is to this watcher; `None` when it does not concern it.
    fn view<'c>(&self, change: &'c Change) -> Option<(ChangeKind, &'c Arc<Entry>)> {
        let now = change.kind != ChangeKind::Deleted && self.selection.matches(&change.entry);
        let before = change
            .previous
            .as_ref()
            .is_some_and(|p| self.selection.matches(p));
        match (before, now) {
            (false, false) => None,
            (false, true) => Some((ChangeKind::Added, &change.entry)),
            (true, true) => Some((ChangeKind::Modified, &change.entry)),
            (true, false) => {
                let gone = change.kind == ChangeKind::Deleted;
                // It left what the watcher selects: its last state in there, with this event's version.
                let last = change.previous.as_ref().filter(|_| !gone);
                Some((ChangeKind::Deleted, last.unwrap_or(&change.entry)))
            }
        }
    }

    /// The frames of what was taken, joined as far as they are small. One alone is sent as the shared bytes it is.
    fn taken_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        let mut alone: Option<Bytes> = None;
        let mut joined: Vec<u8> = Vec::new();
        let mut tally = self.counted.figures.tally();
        let mut worked = 0;
        while worked < limits::SLICE_BYTES {
            let Some(change) = self.taken.pop_front() else {
                break;
            };
            let Some((kind, entry)) = self.view(&change) else {
                continue;
            };
            let Some(subject) = subject(&mut self.answers, entry, change.revision) else {
                // It is asked about before the next piece.
                self.taken.push_front(change);
                break;
            };
            // What is not encoded is joined as far as it is small.
            worked += if self.encodes { entry.json.len() } else { 0 };
            let frame = if std::mem::take(&mut self.headers) {
                self.form.event(kind, &subject, true)?
            } else {
                self.form.shared(&change, kind, &subject)?
            };
            tally.observe(frame.len());
            match alone.take() {
                None if joined.is_empty() => alone = Some(frame),
                None => joined.extend_from_slice(&frame),
                Some(first) => {
                    joined.extend_from_slice(&first);
                    joined.extend_from_slice(&frame);
                }
            }
            if alone.as_ref().map_or(joined.len(), Bytes::len) >= JOIN {
                break;
            }
        }
        self.counted.figures.sent(&tally);
        Ok(alone.or_else(|| (!joined.is_empty()).then(|| joined.into())))
    }

    /// Takes the initial events, to be followed by a bookmark that marks their end.
    fn begin_bookmark(&mut self) {
        let Ok(revision) = self.feed.drain(&mut self.scratch) else {
            self.ended = true;
            return;
        };
        self.taken.extend(self.scratch.drain(..));
        self.bookmark = Some(revision);
        self.schedule_bookmark();
    }

    /// Has the objects of the next piece converted, where that takes asking.
    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        let Some(mut answers) = self.answers.take() else {
            return Poll::Ready(Ok(()));
        };
        let polled = match self.initial.as_slice() {
            [] => {
                let views = self.taken.iter().filter_map(|change| self.view(change));
                answers.poll(cx, views.map(|(_, entry)| entry))
            }
            initial => answers.poll(cx, initial.iter()),
        };
        self.answers = Some(answers);
        polled
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, ApiError>> {
        loop {
            if self.ended {
                return Poll::Ready(Ok(Step::End));
            }
            if self.poll_answers(cx)?.is_pending() {
                let late = self.timer.as_mut().poll(cx).is_ready() && Instant::now() >= self.deadline;
                return if late {
                    Poll::Ready(Ok(Step::End))
                } else {
                    Poll::Pending
                };
            }
            if let Some(piece) = self.initial_piece()? {
                return Poll::Ready(Ok(Step::Piece(piece)));
            }
            if let Some(piece) = self.taken_piece()? {
                return Poll::Ready(Ok(Step::Piece(piece)));
            }
            if self.taken.is_empty()
                && let Some(revision) = self.bookmark.take()
            {
                let headers = std::mem::take(&mut self.headers);
                let bookmark = self.form.bookmark(revision, false, headers)?;
                let mut tally = self.counted.figures.tally();
                tally.observe(bookmark.len());
                self.counted.figures.sent(&tally);
                return Poll::Ready(Ok(Step::Piece(bookmark)));
            }
            if !self.taken.is_empty() {
                continue;
            }
            // Before the events, so that a stream of them cannot hold off the end.
            if self.timer.as_mut().poll(cx).is_ready() {
                let now = Instant::now();
                if now >= self.deadline {
                    return Poll::Ready(Ok(Step::End));
                }
                if self.next_bookmark.is_some_and(|at| now >= at) {
                    self.begin_bookmark();
                    return Poll::Ready(Ok(Step::Taken));
                }
                self.timer.as_mut().reset(self.deadline);
                continue;
            }
            match self.feed.poll(cx, &mut self.scratch) {
                Poll::Pending => return Poll::Pending,
                // The client comes back with the version it has, and gets a 410 then if that is too old.
                Poll::Ready(Err(_)) => return Poll::Ready(Ok(Step::End)),
                Poll::Ready(Ok(())) => {
                    self.taken.extend(self.scratch.drain(..));
                    return Poll::Ready(Ok(Step::Taken));
                }
            }
        }
    }
}

/// How a watch goes on.
enum Step {
    /// With a piece of the body.
    Piece(Bytes),
    /// With events that were taken from the feed, of which pieces are to be made.
    Taken,
    /// Not at all.
    End,
}

/// The object that an event is written from; `None` while its conversion is outstanding.
fn subject(answers: &mut Option<Answers>, entry: &Arc<Entry>, revision: Revision) -> Option<Subject> {
    match answers {
        Some(answers) => Some(Subject::Converted(answers.take(entry)?, revision)),
        None => Some(Subject::Entry(entry.clone(), revision)),
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        loop {
            let polled = match this.turns.take() {
                Some(mut turns) if this.is_heavy() => {
                    let polled = turns.poll(cx, |cx| this.poll_step(cx));
                    this.turns = Some(turns);
                    std::task::ready!(polled)
                }
                turns => {
                    this.turns = turns;
                    this.poll_step(cx)
                }
            };
            return match std::task::ready!(polled) {
                Ok(Step::Piece(piece)) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                // They may have to be encoded in a turn.
                Ok(Step::Taken) => continue,
                Ok(Step::End) => {
                    this.ended = true;
                    Poll::Ready(None)
                }
                Err(error) => {
                    // An object that cannot be converted: the watcher has to know that it misses something.
                    this.ended = true;
                    Poll::Ready(Some(Ok(Frame::data(this.form.error(&error)))))
                }
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
