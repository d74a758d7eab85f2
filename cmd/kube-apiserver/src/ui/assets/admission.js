// Who may change or refuse a write: webhooks and policies, as they are configured.

import { get } from './api.js';
import { badge, body, h, heading, panel, refusal, replace, table } from './dom.js';
import { count, since } from './format.js';
import { every } from './status.js';

const BASE = '/apis/admissionregistration.k8s.io/v1';
const LIMIT = 500;

const link = (resource, object) => h('a', { href: `#/objects/admissionregistration.k8s.io/v1/${resource}/-/${encodeURIComponent(object.metadata.name)}` }, object.metadata.name);

const rules = (list) => (list ?? []).map((rule) => `${(rule.operations ?? []).join(', ')} ${(rule.resources ?? []).join(', ')}${(rule.apiGroups ?? []).some((g) => g) ? ` in ${rule.apiGroups.join(', ')}` : ''}`).join('; ');

function target(config) {
  if (config?.service) return `${config.service.namespace}/${config.service.name}`;
  try {
    return new URL(config.url).host;
  } catch {
    return '–';
  }
}

function webhooks(title, resource, list) {
  const rows = list.items.flatMap((configuration) => (configuration.webhooks ?? []).map((hook) => [
    link(resource, configuration), hook.name, target(hook.clientConfig), hook.failurePolicy === 'Ignore' ? badge('Ignore') : badge('Fail', 'warn'),
    `${hook.timeoutSeconds ?? 10} s`, rules(hook.rules), since(configuration.metadata.creationTimestamp)]));
  return panel(title, count(rows.length, 'webhook'), table(title, [{ title: 'Configuration', head: true }, { title: 'Webhook' }, { title: 'Server' }, { title: 'On failure' },
    { title: 'Timeout', number: true }, { title: 'Writes', wrap: true }, { title: 'Age' }], rows));
}

function policies(title, resource, list, bindings) {
  const rows = list.items.map((policy) => {
    const bound = bindings?.items?.filter((binding) => binding.spec?.policyName === policy.metadata.name);
    return [link(resource, policy), !bound ? '–' : bound.length ? bound.map((b) => b.metadata.name).join(', ') : badge('not bound', 'warn'),
      policy.spec?.failurePolicy === 'Ignore' ? badge('Ignore') : badge('Fail', 'warn'), rules(policy.spec?.matchConstraints?.resourceRules), since(policy.metadata.creationTimestamp)];
  });
  return panel(title, count(rows.length, 'policy', 'policies'), table(title, [{ title: 'Policy', head: true }, { title: 'Bindings' }, { title: 'On failure' }, { title: 'Writes', wrap: true }, { title: 'Age' }], rows));
}

export async function showAdmission(main, signal) {
  const place = h('div');
  main.append(heading('Admission', { sub: 'Webhooks and policies that see writes, in the order in which they are asked.' }), place);
  const list = (resource) => get(`${BASE}/${resource}`, { query: { limit: LIMIT, pretty: 'false' }, signal }).catch((error) => error);
  const draw = async () => {
    const [mutating, mutatingBindings, mutatingHooks, validating, validatingBindings, validatingHooks] = await Promise.all([
      'mutatingadmissionpolicies', 'mutatingadmissionpolicybindings', 'mutatingwebhookconfigurations',
      'validatingadmissionpolicies', 'validatingadmissionpolicybindings', 'validatingwebhookconfigurations'].map(list));
    if (signal.aborted) return;
    const or = (found, title, view) => (found.items ? view() : panel(title, null, body(refusal(found))));
    replace(place,
      or(mutating, 'Mutating policies', () => policies('Mutating policies', 'mutatingadmissionpolicies', mutating, mutatingBindings)),
      or(mutatingHooks, 'Mutating webhooks', () => webhooks('Mutating webhooks', 'mutatingwebhookconfigurations', mutatingHooks)),
      or(validating, 'Validating policies', () => policies('Validating policies', 'validatingadmissionpolicies', validating, validatingBindings)),
      or(validatingHooks, 'Validating webhooks', () => webhooks('Validating webhooks', 'validatingwebhookconfigurations', validatingHooks)));
  };
  await draw();
  every(15_000, signal, draw);
}
