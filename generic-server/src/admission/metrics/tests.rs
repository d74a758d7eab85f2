use super::*;

#[test]
fn names_past_the_bound_are_counted_together() {
    let metrics = DynamicMetrics::default();
    for index in 0..limits::ADMISSION_SERIES + 2 {
        metrics.failed_open(&format!("hook-{index}"), "admit");
    }
    metrics.failed_open("hook-0", "admit");
    let mut out = String::new();
    metrics.collect(&mut out);
    let metric = "apiserver_admission_webhook_fail_open_count";
    assert_eq!(
        out.lines().filter(|line| line.starts_with(metric)).count(),
        limits::ADMISSION_SERIES + 1
    );
    assert!(out.contains(&format!("{metric}{{name=\"hook-0\",type=\"admit\"}} 2\n")));
    assert!(out.contains(&format!("{metric}{{name=\"other\",type=\"admit\"}} 2\n")));
}

#[test]
fn outcomes_of_webhooks_have_upstreams_labels() {
    let metrics = DynamicMetrics::default();
    let took = Duration::from_millis(7);
    let outcomes = [
        WebhookOutcome::Allowed,
        WebhookOutcome::Refused(999),
        WebhookOutcome::Failed {
            code: 503,
            rejected: false,
            why: "it is away",
        },
    ];
    for outcome in outcomes {
        metrics.webhook("a", "validating", Operation::Create, outcome, took);
    }
    metrics.unusable("a", "validating", Operation::Create);
    let mut out = String::new();
    metrics.collect(&mut out);
    for line in [
        "apiserver_admission_webhook_request_total{name=\"a\",code=\"200\",operation=\"CREATE\",rejected=\"false\",type=\"validating\"} 1",
        "apiserver_admission_webhook_request_total{name=\"a\",code=\"600\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"} 1",
        "apiserver_admission_webhook_rejection_count{name=\"a\",error_type=\"no_error\",operation=\"CREATE\",rejection_code=\"600\",type=\"validating\"} 1",
        "apiserver_admission_webhook_rejection_count{name=\"a\",error_type=\"apiserver_internal_error\",operation=\"CREATE\",rejection_code=\"0\",type=\"validating\"} 1",
        "apiserver_admission_webhook_admission_duration_seconds_bucket{name=\"a\",operation=\"CREATE\",rejected=\"false\",type=\"validating\",le=\"0.025\"} 2",
    ] {
        assert!(out.contains(&format!("{line}\n")), "{line}\n{out}");
    }
    assert!(!out.contains("rejection_code=\"503\""));
}
