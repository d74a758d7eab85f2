//! Tokens of other issuers: forged, oversized and many at once, while the issuer answers and while it does not. Each starts an issuer, and a
//! server that accepts its tokens.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use machinery::limits;
use serde_json::{Value, json};
use test_support::Issuer;

use super::attack;
use crate::own::beside_others;
use crate::{Arena, Attack, Bound, Credential, Error, Outcome, Place, Server, Shot};

const REFUSED: Bound = Bound::codes(&[400, 401, 431]).seconds(120);
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// Tokens of one flood, each on a connection of its own.
const FLOOD: usize = 200;
/// How long a good token may take beside a flood: well below the time that bad ones wait. The flood's own handshakes delay its client, too.
const GOOD: Duration = Duration::from_secs(10);
/// How long the server may take to know its issuer.
const KNOWN: Duration = Duration::from_secs(30);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "Tokens of an issuer: alg none, HS256 by its public key, changed claims, critical extensions",
            "access",
            Place::Own,
            REFUSED,
            |arena| Box::pin(forged(arena)),
        ),
        attack(
            "Tokens whose header names another key: kid as a path or SQL, jku, x5u, jwk",
            "access",
            Place::Own,
            REFUSED,
            |arena| Box::pin(named_keys(arena)),
        ),
        attack(
            "Tokens that are expired, not valid yet, of another audience or issuer",
            "access",
            Place::Own,
            REFUSED,
            |arena| Box::pin(untimely(arena)),
        ),
        attack(
            "Tokens of 900 KB, with lists 60,000 deep, of 100,000 dots",
            "access",
            Place::Own,
            REFUSED,
            |arena| Box::pin(oversized(arena)),
        ),
        attack(
            "200 tokens that no key has signed, at once",
            "access",
            Place::Own,
            REFUSED,
            |arena| Box::pin(flood(arena, false)),
        ),
        attack(
            "The same while their issuer does not answer",
            "access",
            Place::Own,
            REFUSED,
            |arena| Box::pin(flood(arena, true)),
        ),
        attack(
            "An issuer with 5,000 keys, and 100 tokens that name none",
            "access",
            Place::Own,
            REFUSED,
            |arena| Box::pin(many_keys(arena)),
        ),
        attack(
            "Distributed claims: a loop, an address of the cloud, a file, an answer of 2 MB",
            "access",
            Place::Own,
            REFUSED,
            |arena| Box::pin(distributed(arena)),
        ),
    ]
}

/// A server and the issuer whose tokens it accepts.
struct Scene {
    server: Server,
    issuer: Issuer,
    /// The server looks at it again and again.
    _config: tempfile::NamedTempFile,
}

impl Scene {
    /// `None` without a program to start.
    async fn start(arena: &Arena) -> Result<Option<Self>, Error> {
        let Some(binary) = &arena.binary else {
            return Ok(None);
        };
        let issuer = Issuer::start().await;
        let config = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": issuer.url(), "certificateAuthority": issuer.ca(), "audiences": ["kubernetes"]},
                "claimMappings": {
                    "username": {"claim": "sub", "prefix": "oidc:"},
                    "groups": {"claim": "groups", "prefix": "oidc:"},
                },
            }],
        });
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), config.to_string())?;
        let flag = format!("--authentication-config={}", file.path().display());
        let server = Server::start(binary, &[&flag]).await?;
        let scene = Scene {
            server,
            issuer,
            _config: file,
        };
        let since = Instant::now();
        while scene.status(&scene.good()).await? != 201 {
            if since.elapsed() > KNOWN {
                return Err("the server does not get to know its issuer".into());
            }
            // The condition is of another process.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Some(scene))
    }

    /// A token that holds.
    fn good(&self) -> String {
        self.issuer.token(&json!({"sub": "jane"}))
    }

    async fn status(&self, token: &str) -> Result<u16, Error> {
        Ok(self.server.target.send(asked(token)).await?.status)
    }

    /// Sends each token at once, and a good one meanwhile.
    async fn volley(&self, tokens: Vec<String>) -> Result<Outcome, Error> {
        let mut flying = tokio::task::JoinSet::new();
        for token in tokens {
            let target = self.server.target.clone();
            flying.spawn(async move { target.send(asked(&token)).await });
        }
        let mut outcome = Outcome::new();
        self.served(&mut outcome).await?;
        while let Some(answer) = flying.join_next().await {
            outcome.count(&answer??);
        }
        Ok(outcome)
    }

    /// A user with a good token is served, soon.
    async fn served(&self, outcome: &mut Outcome) -> Result<(), Error> {
        let since = Instant::now();
        let status = self.status(&self.good()).await?;
        let took = since.elapsed();
        if status != 201 || took > GOOD {
            outcome.broke(format!("a good token: {status} after {} ms", took.as_millis()));
        }
        Ok(())
    }

    async fn refuses(&self, tokens: Vec<String>) -> Result<Outcome, Error> {
        beside_others(&self.server, &REFUSED, self.volley(tokens)).await
    }
}

fn asked(token: &str) -> Shot {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    Shot::post(WHO, &review).by(&Credential::Token(token.to_string()))
}

fn skipped() -> Outcome {
    Outcome::skipped("needs --binary")
}

fn encode(part: &Value) -> String {
    BASE64.encode(part.to_string())
}

/// The parts of a token.
fn parts(token: &str) -> (String, String, String) {
    let mut parts = token.split('.').map(str::to_string);
    let mut next = || parts.next().unwrap_or_default();
    (next(), next(), next())
}

async fn forged(arena: &Arena) -> Result<Outcome, Error> {
    let Some(scene) = Scene::start(arena).await? else {
        return Ok(skipped());
    };
    let (header, claims, signature) = parts(&scene.good());
    let admin = encode(&json!({
        "iss": scene.issuer.url(), "aud": "kubernetes", "sub": "admin", "exp": 9_999_999_999_u64, "groups": ["system:masters"],
    }));
    let mut tokens = vec![format!("{header}.{admin}.{signature}")];
    for algorithm in ["none", "None", "NONE", "", "es256", "ES384", "RS256"] {
        let header = encode(&json!({"alg": algorithm, "kid": "1"}));
        tokens.push(format!("{header}.{admin}."));
        tokens.push(format!("{header}.{claims}.{signature}"));
    }
    // The public key as the secret of a symmetric algorithm.
    let public = scene.issuer.keys()["keys"][0].to_string();
    for secret in [public.as_bytes(), scene.issuer.ca().as_bytes()] {
        let signed = format!("{}.{admin}", encode(&json!({"alg": "HS256", "kid": "1"})));
        tokens.push(format!(
            "{signed}.{}",
            BASE64.encode(test_support::hs256(secret, &signed))
        ));
    }
    let critical = encode(&json!({"alg": "ES256", "kid": "1", "crit": ["b64"], "b64": false}));
    tokens.push(format!("{critical}.{claims}.{signature}"));
    scene.refuses(tokens).await
}

async fn named_keys(arena: &Arena) -> Result<Outcome, Error> {
    let Some(scene) = Scene::start(arena).await? else {
        return Ok(skipped());
    };
    let stranger = Issuer::start().await;
    let claims = json!({"iss": scene.issuer.url(), "sub": "admin"});
    let (_, claims, signature) = parts(&stranger.token(&claims));
    let url = format!("{}/keys", stranger.url());
    let headers = [
        json!({"alg": "ES256", "kid": "../../../../dev/null"}),
        json!({"alg": "ES256", "kid": "1' OR '1'='1"}),
        json!({"alg": "ES256", "kid": "1\u{0}"}),
        json!({"alg": "ES256", "kid": url}),
        json!({"alg": "ES256", "kid": "1", "jku": url}),
        json!({"alg": "ES256", "kid": "1", "x5u": url}),
        json!({"alg": "ES256", "kid": "1", "jwk": stranger.keys()["keys"][0]}),
        json!({"alg": "ES256", "jwk": stranger.keys()["keys"][0], "jku": url}),
    ];
    let tokens = headers
        .iter()
        .map(|header| format!("{}.{claims}.{signature}", encode(header)));
    let mut outcome = scene.refuses(tokens.collect()).await?;
    let fetched = stranger.requests().len();
    if fetched > 0 {
        outcome.broke(format!("the server asked the stranger's issuer {fetched} times"));
    }
    Ok(outcome)
}

async fn untimely(arena: &Arena) -> Result<Outcome, Error> {
    let Some(scene) = Scene::start(arena).await? else {
        return Ok(skipped());
    };
    let stranger = Issuer::start().await;
    let of = |claims: Value| scene.issuer.token(&claims);
    let tokens = vec![
        of(json!({"sub": "jane", "exp": 1})),
        of(json!({"sub": "jane", "exp": null})),
        of(json!({"sub": "jane", "exp": -1})),
        of(json!({"sub": "jane", "exp": "never"})),
        of(json!({"sub": "jane", "nbf": 9_999_999_999_u64})),
        of(json!({"sub": "jane", "aud": "other"})),
        of(json!({"sub": "jane", "aud": null})),
        of(json!({"sub": "jane", "aud": ["Kubernetes", "kubernetes "]})),
        of(json!({"sub": "jane", "iss": stranger.url()})),
        of(json!({"sub": "jane", "iss": format!("{}/", scene.issuer.url())})),
        stranger.token(&json!({"sub": "jane"})),
        stranger.token(&json!({"sub": "jane", "iss": scene.issuer.url()})),
    ];
    scene.refuses(tokens).await
}

async fn oversized(arena: &Arena) -> Result<Outcome, Error> {
    let Some(scene) = Scene::start(arena).await? else {
        return Ok(skipped());
    };
    let (header, _, signature) = parts(&scene.good());
    let of = |claims: String| format!("{header}.{}.{signature}", BASE64.encode(claims));
    let long = |bytes: usize| of(json!({"iss": scene.issuer.url(), "sub": "x".repeat(bytes)}).to_string());
    let deep = |depth: usize| {
        of(format!(
            "{{\"iss\":\"{}\",\"a\":{}",
            scene.issuer.url(),
            "[".repeat(depth)
        ))
    };
    let wide = of(json!({"iss": scene.issuer.url(), "a": vec![0; 40_000]}).to_string());
    let mut tokens = vec![
        long(650_000),
        long(limits::SIGNED_TOKEN_BYTES),
        deep(60_000),
        wide,
    ];
    tokens.extend([".".repeat(100_000), format!("{header}.{}", "a".repeat(800_000))]);
    // A good token that is as long as it may be is one; past that it is none.
    let padded = |bytes: usize| {
        scene
            .issuer
            .token(&json!({"sub": "jane", "pad": "x".repeat(bytes)}))
    };
    let at = padded(limits::SIGNED_TOKEN_BYTES * 3 / 4 - 1_000);
    let past = padded(limits::SIGNED_TOKEN_BYTES * 3 / 4 + 1_000);
    let at = scene.status(&at).await?;
    tokens.extend(vec![past; 8]);
    let mut outcome = scene.refuses(tokens).await?;
    if at != 201 {
        outcome.broke(format!(
            "a good token of almost {} bytes: {at}",
            limits::SIGNED_TOKEN_BYTES
        ));
    }
    Ok(outcome)
}

async fn flood(arena: &Arena, stalled: bool) -> Result<Outcome, Error> {
    let Some(scene) = Scene::start(arena).await? else {
        return Ok(skipped());
    };
    scene.issuer.set_stalled(stalled);
    let before = scene.issuer.requests().len();
    let (header, claims, _) = parts(&scene.good());
    let bad = |number: usize| format!("{header}.{claims}.{}", BASE64.encode(number.to_string()));
    let since = Instant::now();
    let mut outcome = scene.refuses((0..FLOOD).map(bad).collect()).await?;
    let seconds = usize::try_from(since.elapsed().as_secs())?;
    let fetches = scene.issuer.requests().len() - before;
    // One for each pause, and one that was under way.
    if fetches > seconds + 2 {
        outcome.broke(format!("{fetches} requests to the issuer in {seconds} s"));
    }
    outcome.note = format!("{fetches} requests to the issuer; {}", outcome.note);
    Ok(outcome)
}

async fn many_keys(arena: &Arena) -> Result<Outcome, Error> {
    let Some(scene) = Scene::start(arena).await? else {
        return Ok(skipped());
    };
    // The real one first: a token that names its key is good as before.
    let mut keys = vec![scene.issuer.keys()["keys"][0].clone()];
    for number in 0..5_000 {
        let mut key = keys[0].clone();
        key["kid"] = format!("other-{number}").into();
        keys.push(key);
    }
    scene.issuer.serve("/keys", json!({"keys": keys}).to_string());
    let (_, claims, _) = parts(&scene.good());
    let header = encode(&json!({"alg": "ES256"}));
    let bad = |number: usize| {
        let signature = format!("{number:064}");
        format!("{header}.{claims}.{}", BASE64.encode(signature))
    };
    scene.refuses((0..100).map(bad).collect()).await
}

async fn distributed(arena: &Arena) -> Result<Outcome, Error> {
    let Some(scene) = Scene::start(arena).await? else {
        return Ok(skipped());
    };
    let at = |endpoint: &str| {
        json!({
            "sub": "jane", "_claim_names": {"groups": "s"},
            "_claim_sources": {"s": {"endpoint": endpoint, "access_token": "t"}},
        })
    };
    let url = |path: &str| format!("{}{path}", scene.issuer.url());
    // The answer is a token that leads to the same place again.
    scene
        .issuer
        .serve("/loop", scene.issuer.token(&at(&url("/loop"))));
    scene.issuer.serve("/long", "a".repeat(2 << 20));
    let places = [
        url("/loop"),
        url("/long"),
        url("/nothing"),
        "https://169.254.169.254/latest/meta-data".into(),
        "http://169.254.169.254/latest/meta-data".into(),
        "file:///etc/passwd".into(),
        "https://[::]:1/".into(),
    ];
    let tokens = places.iter().map(|place| scene.issuer.token(&at(place)));
    let mut outcome = scene.refuses(tokens.collect()).await?;
    let loops = scene
        .issuer
        .requests()
        .iter()
        .filter(|(path, _)| path == "/loop")
        .count();
    if loops > 2 {
        outcome.broke(format!("the loop was followed {loops} times"));
    }
    Ok(outcome)
}
