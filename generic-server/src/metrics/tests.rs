use super::*;

#[test]
fn decisions_are_timed_and_users_counted_by_kind() {
    let metrics = Metrics::new();
    metrics.authenticated(AuthenticationResult::Success, Duration::from_micros(10));
    metrics.authenticated(AuthenticationResult::Error, Duration::from_secs(30));
    metrics.authorized(AuthorizationResult::NoOpinion, Duration::from_millis(3));
    for user in [
        "admin",
        "system:serviceaccount:kube-system:default",
        "jane@example.com",
        "jane",
        "system:serviceaccount:default:default",
        "",
    ] {
        metrics.request_of(user);
    }
    let out = metrics.render();
    for expected in [
        "authentication_attempts{result=\"success\"} 1\n",
        "authentication_attempts{result=\"failure\"} 0\n",
        "authentication_duration_seconds_bucket{result=\"success\",le=\"0.001\"} 1\n",
        "authentication_duration_seconds_bucket{result=\"error\",le=\"16.384\"} 0\n",
        "authentication_duration_seconds_bucket{result=\"error\",le=\"+Inf\"} 1\n",
        "authorization_attempts_total{result=\"no-opinion\"} 1\n",
        "authorization_duration_seconds_bucket{result=\"no-opinion\",le=\"0.004\"} 1\n",
        "authenticated_user_requests{username=\"admin\"} 1\n",
        "authenticated_user_requests{username=\"system:serviceaccount:kube-system:default\"} 1\n",
        "authenticated_user_requests{username=\"email_id\"} 1\n",
        "authenticated_user_requests{username=\"other\"} 3\n",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}");
    }
    assert!(!out.contains("jane") && !out.contains("kubelet"), "{out}");
}
