use http::Request;

use super::*;

fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request").into_parts().0
}

#[track_caller]
fn check(custom: bool, accept: &str, expected: Result<(Media, View), u16>) {
    let head = parts("/", &[("accept", accept)]);
    let got = of(
        &head,
        Offer {
            custom,
            stream: false,
            table: true,
        },
    );
    let got = got.map(|n| (n.media, n.view)).map_err(|e| e.code());
    assert_eq!(got, expected, "{accept}");
}

#[test]
fn the_best_media_type_that_is_offered() {
    use Media::{Json, Yaml};
    let object = |media| Ok((media, View::Object));
    let table = View::Table(MetaVersion::V1, IncludeObject::Metadata);
    for (accept, expected) in [
        ("*/*", object(Json)),
        ("application/*", Err(406)),
        ("application/json;q=0.1, application/yaml;q=0.9", object(Yaml)),
        ("text/html, */*;q=0.1", object(Json)),
        ("application/json;charset=utf-8", object(Json)),
        ("application/json;stream=watch", object(Json)),
        ("text/html", Err(406)),
        ("text/yaml", Err(406)),
        ("application/cbor", Err(406)),
        ("application/xml, application/json;q=0.5", object(Json)),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Ok((Json, table)),
        ),
        ("application/json;as=Table;v=v2;g=meta.k8s.io", Err(406)),
        (
            "application/json;as=Table;v=v2;g=meta.k8s.io, application/json",
            object(Json),
        ),
        (
            "application/json,application/vnd.kubernetes.protobuf",
            object(Json),
        ),
        (
            "application/vnd.kubernetes.protobuf,application/json",
            object(Media::Protobuf),
        ),
        ("application/json;as=Bogus;v=v1;g=meta.k8s.io", Err(406)),
        (
            "application/yaml;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
            Ok((Yaml, View::Partial(MetaVersion::V1Beta1))),
        ),
    ] {
        check(false, accept, expected);
    }
    check(true, "application/*", object(Json));
    check(true, "application/vnd.kubernetes.protobuf", Err(406));
    check(
        true,
        "application/vnd.kubernetes.protobuf, application/json",
        object(Json),
    );
}

#[test]
fn refusals_differ_between_built_in_and_custom() {
    let head = parts("/", &[("accept", "text/html")]);
    let text = |custom| {
        of(
            &head,
            Offer {
                custom,
                stream: false,
                table: true,
            },
        )
        .expect_err("406")
        .message()
        .to_string()
    };
    assert!(text(false).starts_with("406: Not Acceptable\n\nAvailable representations: application/json,"));
    assert!(text(true).starts_with("only the following media types are accepted: application/json,"));
}

#[test]
fn people_get_indentation() {
    for (uri, agent, expected) in [
        ("/a", "kubectl/1", false),
        ("/a", "curl/8", true),
        ("/a?pretty=false", "curl/8", false),
        ("/a?pretty=", "Mozilla/5.0 x", true),
        ("/a?x=1&pretty=true", "", true),
        ("/a?pretty=0", "", false),
    ] {
        let head = parts(uri, &[("user-agent", agent)]);
        assert_eq!(wants_pretty(&head.uri, &head.headers), expected, "{uri} {agent}");
    }
}

#[test]
fn bad_table_options() {
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let offer = Offer {
        custom: false,
        stream: false,
        table: true,
    };
    let error = of(&parts("/x?includeObject=All", &accept), offer).expect_err("unknown");
    assert_eq!(
        error.message(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', 'Object', 'None', or empty"
    );
}

#[test]
fn gzip_is_a_token_of_its_own() {
    for (value, expected) in [
        ("gzip", true),
        ("br, gzip", true),
        ("deflate, gzip;q=1.0", false),
        ("identity", false),
        ("", false),
    ] {
        assert_eq!(
            takes_gzip(&parts("/", &[("accept-encoding", value)]).headers),
            expected,
            "{value}"
        );
    }
}

#[test]
fn aggregated_discovery_is_asked_for_by_name() {
    let form = |accept: &str| document(&parts("/apis", &[("accept", accept)]).headers, true, false);
    let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert_eq!(
        form(&format!("{v2},application/json")),
        Ok(DocumentForm::AggregatedDiscovery)
    );
    assert_eq!(
        form(&format!("application/json,{v2}")),
        Ok(DocumentForm::AggregatedDiscovery)
    );
    assert_eq!(form("application/json"), Ok(DocumentForm::Json));
    assert_eq!(
        form("application/json;g=x;v=v2;as=APIGroupDiscoveryList,*/*"),
        Ok(DocumentForm::Json)
    );
}
