use super::upload::Sizes;
use super::*;
use crate::streaming::spdy::Frame;
use crate::streaming::websocket::Event;

type Duplex = tokio::io::DuplexStream;

/// A client and a node at the ends of a command.
struct Rig {
    reader: websocket::Reader<ReadHalf<Duplex>>,
    writer: websocket::Writer<WriteHalf<Duplex>>,
    frames: spdy::Reader<ReadHalf<Duplex>>,
    node: spdy::Writer<WriteHalf<Duplex>>,
    task: tokio::task::JoinHandle<Option<u16>>,
    /// The streams that the command opened, by type.
    streams: std::collections::HashMap<String, u32>,
}

const ALL: Channels = Channels {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};

impl Rig {
    /// Starts a command, whose streams the node accepts.
    async fn start(channels: Channels, protocol: &str) -> Self {
        let rig = Rig::open(channels, protocol).await;
        rig.accept().await;
        rig
    }

    /// The node accepts the streams.
    async fn accept(&self) {
        for stream in self.streams.values() {
            self.node.reply(*stream).await.expect("a reply");
        }
    }

    /// Starts a command, whose streams the node has not accepted yet.
    async fn open(channels: Channels, protocol: &str) -> Self {
        let (client, ours) = tokio::io::duplex(4096);
        let (node, theirs) = tokio::io::duplex(4096);
        let protocol = protocol.to_string();
        let connected = async move { Ok((Box::new(theirs) as Io, protocol)) };
        let task = tokio::spawn(RemoteCommand { channels }.run(Box::new(ours), connected));
        let (from, to) = tokio::io::split(client);
        let (from_them, to_them) = tokio::io::split(node);
        let mut rig = Rig {
            reader: websocket::Reader::new(from, End::Server),
            writer: websocket::Writer::new(to, End::Client),
            frames: spdy::Reader::new(from_them),
            node: spdy::Writer::new(to_them),
            task,
            streams: std::collections::HashMap::new(),
        };
        let stderr = channels.stderr && !channels.tty;
        let expected = 1 + [channels.stdin, channels.stdout, stderr, channels.tty]
            .iter()
            .filter(|on| **on)
            .count();
        while rig.streams.len() < expected {
            if let Some(Frame::Open { stream, headers, .. }) = rig.frames.next().await.expect("a frame") {
                let kind = headers.into_iter().find(|(name, _)| name == "streamtype");
                rig.streams.insert(kind.expect("a type").1, stream);
            }
        }
        rig
    }

    /// The next frame with data.
    async fn data(&mut self) -> (u32, Vec<u8>, bool) {
        loop {
            match self.frames.next().await.expect("a frame") {
                Some(Frame::Data { stream, bytes, last }) => return (stream, bytes.to_vec(), last),
                Some(_) => {}
                None => panic!("the command ended"),
            }
        }
    }

    /// All messages to the client until the end, those of one channel joined.
    async fn messages(mut self) -> std::collections::BTreeMap<u8, Vec<u8>> {
        let mut all = std::collections::BTreeMap::new();
        let mut channel = 0;
        loop {
            match self.reader.next().await.expect("an event") {
                Some(Event::Data { mut bytes, first, .. }) => {
                    if first {
                        channel = bytes.split_to(1)[0];
                    }
                    all.entry(channel)
                        .or_insert_with(Vec::new)
                        .extend_from_slice(&bytes);
                }
                Some(Event::Close(status)) => break assert_eq!(status, Some(NORMAL)),
                Some(_) => {}
                None => panic!("the end is not said"),
            }
        }
        drop(self.reader);
        drop(self.writer);
        self.task.await.expect("a task");
        all
    }

    fn stream(&self, kind: &str) -> u32 {
        self.streams[kind]
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[tokio::test]
async fn input_output_and_the_exit_code_are_carried() {
    let mut rig = Rig::start(ALL, "v4.channel.k8s.io").await;
    rig.writer.message(&[&[STDIN], b"hello"]).await.expect("sent");
    assert_eq!(rig.data().await, (rig.stream("stdin"), b"hello".to_vec(), false));
    rig.writer.message(&[&[CLOSE, STDIN]]).await.expect("sent");
    assert_eq!(rig.data().await, (rig.stream("stdin"), vec![], true));
    let [out, err, error] = ["stdout", "stderr", "error"].map(|kind| rig.stream(kind));
    rig.node.data(out, b"out", false).await.expect("sent");
    rig.node.data(err, b"err", true).await.expect("sent");
    rig.node.data(out, b"put", true).await.expect("sent");
    let exit = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
    rig.node.data(error, exit, true).await.expect("sent");
    let messages = rig.messages().await;
    assert_eq!(text(&messages[&STDOUT]), "output");
    assert_eq!(text(&messages[&STDERR]), "err");
    assert!(text(&messages[&ERROR]).contains(r#""message":"7""#));
}

#[tokio::test]
async fn a_terminal_has_sizes_and_no_errors_of_its_own() {
    let channels = Channels { tty: true, ..ALL };
    let mut rig = Rig::start(channels, "v4.channel.k8s.io").await;
    assert!(!rig.streams.contains_key("stderr"));
    rig.writer
        .message(&[&[RESIZE], br#"{"Width":80,"Height":24}"#])
        .await
        .expect("sent");
    assert_eq!(
        rig.data().await,
        (
            rig.stream("resize"),
            b"{\"Width\":80,\"Height\":24}\n".to_vec(),
            false
        )
    );
    for kind in ["stdout", "error"] {
        rig.node.data(rig.stream(kind), b"", true).await.expect("sent");
    }
    assert_eq!(
        text(&rig.messages().await[&ERROR]),
        r#"{"metadata":{},"status":"Success"}"#
    );
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_command() {
    let mut rig = Rig::start(ALL, "v4.channel.k8s.io").await;
    drop((rig.reader, rig.writer));
    let mut closed = false;
    while let Some(frame) = rig.frames.next().await.expect("a frame") {
        closed |= matches!(frame, Frame::Data { stream, last: true, .. } if stream == rig.streams["stdin"]);
    }
    assert!(closed, "the command's input has an end");
    assert_eq!(rig.task.await.expect("a task"), None);
}

#[tokio::test]
async fn a_node_that_vanishes_is_no_success() {
    let rig = Rig::start(ALL, "v4.channel.k8s.io").await;
    let Rig {
        reader,
        writer,
        frames,
        node,
        task,
        streams,
    } = rig;
    drop((frames, node));
    let (frames, node) = {
        let (from, to) = tokio::io::split(tokio::io::duplex(1).0);
        (spdy::Reader::new(from), spdy::Writer::new(to))
    };
    let rig = Rig {
        reader,
        writer,
        frames,
        node,
        task,
        streams,
    };
    let messages = rig.messages().await;
    assert!(
        text(&messages[&ERROR]).contains("error reading from error stream"),
        "{messages:?}"
    );
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_is_said_on_the_error_channel() {
    let (client, ours) = tokio::io::duplex(4096);
    let refused = async { Err(ApiError::internal("no route")) };
    let task = tokio::spawn(RemoteCommand { channels: ALL }.run(Box::new(ours), refused));
    let (from, _to) = tokio::io::split(client);
    let mut reader = websocket::Reader::new(from, End::Server);
    let mut all = Vec::new();
    while let Some(Event::Data { bytes, .. }) = reader.next().await.expect("an event") {
        all.extend_from_slice(&bytes);
    }
    assert!(
        text(&all).contains("Internal error occurred: no route"),
        "{all:?}"
    );
    drop((reader, _to));
    assert_eq!(task.await.expect("a task"), Some(500));
}

#[tokio::test]
async fn the_end_of_a_command_has_so_many_bytes() {
    for past in [0, 1, limits::COMMAND_STATUS_BYTES] {
        let rig = Rig::start(ALL, "v2.channel.k8s.io").await;
        for kind in ["stdout", "stderr"] {
            rig.node.data(rig.stream(kind), b"", true).await.expect("sent");
        }
        let error = rig.stream("error");
        let kept = "k".repeat(limits::COMMAND_STATUS_BYTES);
        rig.node.data(error, kept.as_bytes(), false).await.expect("sent");
        rig.node.data(error, &vec![b'p'; past], true).await.expect("sent");
        let messages = rig.messages().await;
        let status: Value = serde_json::from_slice(&messages[&ERROR]).expect("a Status");
        let cause = &status["details"]["causes"][0]["message"];
        let said = cause.as_str().expect("a text");
        assert!(
            said == format!("error executing remote command: {kept}"),
            "{past}: {}",
            said.len()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_has_its_time_to_accept_streams() {
    let short = Duration::from_millis(1);
    let mut rig = Rig::open(ALL, "v4.channel.k8s.io").await;
    tokio::time::sleep(limits::STREAM_WAIT - short).await;
    rig.accept().await;
    rig.writer.message(&[&[STDIN], b"hello"]).await.expect("sent");
    assert_eq!(rig.data().await.1, b"hello");
    let rig = Rig::open(ALL, "v4.channel.k8s.io").await;
    tokio::time::sleep(limits::STREAM_WAIT - short).await;
    assert!(!rig.task.is_finished());
    // All but one.
    let last = rig.stream("stderr");
    for stream in rig.streams.values().filter(|stream| **stream != last) {
        rig.node.reply(*stream).await.expect("a reply");
    }
    let messages = rig.messages().await;
    assert!(text(&messages[&ERROR]).contains(TIMED_OUT), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_takes_nothing_is_given_up() {
    let (client, ours) = tokio::io::duplex(4096);
    let (_node, theirs) = tokio::io::duplex(1);
    let connected = async { Ok((Box::new(theirs) as Io, "v4.channel.k8s.io".to_string())) };
    let since = Instant::now();
    let task = tokio::spawn(RemoteCommand { channels: ALL }.run(Box::new(ours), connected));
    let (from, _to) = tokio::io::split(client);
    let mut reader = websocket::Reader::new(from, End::Server);
    let mut all = Vec::new();
    loop {
        match reader.next().await.expect("an event") {
            Some(Event::Data { bytes, .. }) => all.extend_from_slice(&bytes),
            Some(Event::Close(_)) => break,
            Some(_) => {}
            None => panic!("the end is not said"),
        }
    }
    assert!(text(&all).contains(TIMED_OUT), "{all:?}");
    assert_eq!(since.elapsed(), limits::STREAM_WAIT);
    drop((reader, _to));
    assert_eq!(task.await.expect("a task"), Some(500));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_asked_in_time_whether_it_is_there() {
    let mut rig = Rig::start(ALL, "v4.channel.k8s.io").await;
    let since = Instant::now();
    for (times, id) in [(1, 1), (2, 3), (3, 5)] {
        assert_eq!(rig.frames.next().await.expect("a frame"), Some(Frame::Ping(id)));
        assert_eq!(since.elapsed(), limits::STREAM_PING * times);
    }
}

#[tokio::test]
async fn a_message_that_closes_no_channel_ends_the_connection() {
    for wrong in [&[CLOSE][..], &[CLOSE, STDIN, 1], &[CLOSE, 5]] {
        let mut rig = Rig::start(ALL, "v4.channel.k8s.io").await;
        rig.writer.message(&[wrong]).await.expect("sent");
        while rig.frames.next().await.expect("a frame").is_some() {}
        rig.task.await.expect("a task");
    }
}

#[tokio::test]
async fn channels_without_a_stream_are_passed_over() {
    let channels = Channels { stdin: false, ..ALL };
    let mut rig = Rig::start(channels, "v2.channel.k8s.io").await;
    for channel in [STDIN, STDOUT, RESIZE, 9] {
        rig.writer.message(&[&[channel], b"dropped"]).await.expect("sent");
    }
    rig.writer.message(&[&[CLOSE, STDOUT]]).await.expect("sent");
    rig.node.ping(2).await.expect("sent");
    // The answer comes behind anything that was passed on.
    assert_eq!(rig.frames.next().await.expect("a frame"), Some(Frame::Ping(2)));
    for kind in ["stdout", "stderr"] {
        rig.node.data(rig.stream(kind), b"", true).await.expect("sent");
    }
    rig.node
        .data(rig.stream("error"), b"exit 1", true)
        .await
        .expect("sent");
    assert!(text(&rig.messages().await[&ERROR]).contains("error executing remote command: exit 1"));
}

#[tokio::test(start_paused = true)]
async fn output_waits_for_a_client_that_does_not_read() {
    let rig = Rig::start(ALL, "v4.channel.k8s.io").await;
    let out = rig.stream("stdout");
    let mut sent = 0;
    let sending = async {
        loop {
            rig.node.data(out, &[0; 1024], false).await.expect("sent");
            sent += 1024;
        }
    };
    let _ = timeout(Duration::from_millis(50), sending).await;
    // Both pipes, what is read at once, and what is written of it.
    let room = 2 * 4096 + 2 * limits::STREAM_PIECE_BYTES + 2048;
    assert!(sent <= room, "{sent}");
}

#[test]
fn sizes_come_in_any_pieces() {
    let check = |pieces: &[&str], expected: &str| {
        let mut sizes = Sizes::default();
        let read: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| sizes.read(piece.as_bytes()))
            .collect();
        assert_eq!(text(&read), expected, "{pieces:?}");
    };
    let one = "{\"Width\":80,\"Height\":24}\n";
    check(&[one], one);
    check(&["{\"Width\":80,", "\"Height\":24}"], one);
    check(&["{\"width\":80,\"height\":24,\"other\":1}"], one);
    check(&[one, "\n\n", one], &one.repeat(2));
    check(
        &["{\"Width\":80,\"Height\":24}{\"Width\":80", ",\"Height\":24}"],
        &one.repeat(2),
    );
    check(&["nonsense", one], "");
    check(&[&" ".repeat(limits::TERMINAL_SIZE_BYTES + 1), one], "");
    check(&["{\"Width\":-1}", one], "");
}
