// What the user may do, as the server's authorizers say. It only decides which buttons are offered: the server decides about requests.

import { post } from './api.js';

const answers = new Map();
const HELD_MILLISECONDS = 30_000;
const HELD = 500;

export async function may(verb, attributes) {
  const key = JSON.stringify([verb, attributes]);
  const held = answers.get(key);
  if (held && Date.now() - held.at < HELD_MILLISECONDS) return held.allowed;
  const allowed = post('/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
    apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview',
    spec: { resourceAttributes: { verb, ...attributes } },
  }).then((review) => review.status?.allowed === true, () => false);
  if (answers.size >= HELD) answers.clear();
  answers.set(key, { at: Date.now(), allowed });
  return allowed;
}

export const forgetAnswers = () => answers.clear();
