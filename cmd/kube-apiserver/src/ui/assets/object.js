// One object as YAML: read, edited with the server's own dry run, deleted, created.

import { follow, get, request, text, warnings } from './api.js';
import { may } from './access.js';
import { announce, ask, freshId, h, heading, note, refusal, replace } from './dom.js';
import { address, kindOf, listPath } from './explorer.js';
import { showDifference } from './diff.js';
import { highlight, withoutManagedFields } from './yaml.js';

const YAML = 'application/yaml';
const MANAGER = 'kube-apiserver-ui';
const NAMESPACE = /^ {2}namespace: +["']?([a-z0-9-]+)["']?\s*$/m;
// Texts beyond it are edited without colours.
const COLOURED = 300_000;

const back = (kind) => [h('a', { href: '#/objects' }, 'Objects'), ' / ', h('a', { href: address(kind), 'data-key': 'back' }, kind.kind)];

// A text area over the same text in colours.
function editor(initial) {
  const area = h('textarea', { class: 'code', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', 'aria-label': 'YAML of the object' });
  area.value = initial;
  const behind = h('pre', { class: 'yaml code', 'aria-hidden': 'true' });
  const view = h('div', { class: 'editor' }, behind, area);
  const paint = () => {
    const plain = area.value.length > COLOURED;
    view.classList.toggle('plain', plain);
    // The last line needs something in it to have a height.
    if (plain) replace(behind);
    else replace(behind, highlight(area.value), '\n ');
  };
  area.addEventListener('input', paint);
  paint();
  return { view, area };
}

// Edits a text: a dry run shows what the server would make of it, then it is written. `send(text, dryRun)` makes the request.
function edit({ place, initial, before, send, done, cancel }) {
  const { view, area } = editor(initial);
  const result = h('div');
  const review = h('button', { class: 'primary', type: 'button' }, 'Review changes');
  const leave = h('button', { type: 'button', 'data-key': 'back' }, 'Cancel');
  const steps = h('div', { class: 'actions' }, review, leave);
  const id = freshId('edit');
  const warn = (response) => warnings(response).map((warning) => note('warn', warning));
  const busy = (is) => steps.querySelectorAll('button').forEach((button) => { button.disabled = is; });

  const editing = () => {
    view.hidden = false;
    replace(steps, review, leave);
    replace(result);
    area.focus();
  };
  const write = async () => {
    busy(true);
    try {
      const response = await send(area.value, false);
      announce('Written');
      await done(response, warn(response));
    } catch (error) {
      editing();
      replace(result, refusal(error));
    }
    busy(false);
  };
  review.addEventListener('click', async () => {
    busy(true);
    replace(result);
    try {
      const response = await send(area.value, true);
      const after = withoutManagedFields(await response.text());
      const { added, removed, view: changes } = showDifference(await before(), after);
      if (added + removed === 0) {
        replace(result, warn(response), note('', 'The server would change nothing.'));
      } else {
        view.hidden = true;
        const confirm = h('button', { class: 'primary', type: 'button', onclick: write }, 'Write');
        replace(steps, confirm, h('button', { type: 'button', onclick: editing, 'data-key': 'back' }, 'Edit again'));
        replace(result, warn(response), note('', `The server takes it: ${added} lines added, ${removed} removed. Nothing is written yet.`), changes);
        confirm.focus();
      }
    } catch (error) {
      replace(result, refusal(error));
    }
    busy(false);
  });
  leave.addEventListener('click', cancel);
  replace(place, h('section', { class: 'panel', 'aria-labelledby': id }, h('header', {}, h('h2', { id }, 'Edit'), h('p', {}, 'checked by a dry run on the server before anything is written')),
    h('div', { class: 'body' }, result, steps), view));
  area.focus();
  area.setSelectionRange(0, 0);
}

export async function showObject(main, signal, setLive, asked) {
  const kind = await kindOf(asked);
  const path = `${listPath(kind, asked.namespace)}/${encodeURIComponent(asked.name)}`;
  const about = { group: kind.group, version: kind.version, resource: kind.resource, namespace: asked.namespace, name: asked.name };
  let managed = false;
  let busy = false;
  let yaml = await text(path, { accept: YAML, signal });
  const place = h('div');
  const banner = h('div');
  const change = h('button', { disabled: true, 'data-key': 'edit', type: 'button' }, 'Edit');
  const remove = h('button', { disabled: true, class: 'danger', type: 'button' }, 'Delete');
  const fields = h('input', { type: 'checkbox', id: freshId('managed'), onchange: (event) => { managed = event.target.checked; draw(); } });
  main.append(heading(asked.name, { crumbs: back(kind), sub: asked.namespace ? `in namespace ${asked.namespace}` : `${kind.kind}, cluster-scoped`,
    actions: [h('label', { class: 'check', for: fields.id }, fields, 'Managed fields'), change, remove] }), banner, place);
  const draw = () => {
    const shown = managed ? yaml : withoutManagedFields(yaml);
    replace(place, h('section', { class: 'panel', 'aria-label': 'YAML' }, h('header', {}, h('h2', {}, 'YAML')),
      h('pre', { class: 'yaml code', tabindex: '0', role: 'region', 'aria-label': `YAML of ${asked.name}` }, highlight(shown))));
  };
  const read = async () => {
    yaml = await text(path, { accept: YAML, signal });
  };
  const offer = (button, verb, does) => {
    if (!kind.verbs.includes(verb)) {
      button.hidden = true;
      return;
    }
    may(verb, about).then((allowed) => {
      button.disabled = !allowed;
      button.title = allowed ? '' : `You may not ${does} this object.`;
    });
  };
  offer(change, 'update', 'change');
  offer(remove, 'delete', 'delete');

  change.addEventListener('click', () => {
    busy = true;
    replace(banner);
    change.disabled = true;
    const end = () => {
      busy = false;
      change.disabled = false;
      draw();
      change.focus();
    };
    edit({
      place, initial: withoutManagedFields(yaml),
      // What is there now: a resourceVersion in the text refuses a write over a change of somebody else.
      before: async () => withoutManagedFields(await text(path, { accept: YAML, signal })),
      send: (body, dry) => request(path, { method: 'PUT', type: YAML, accept: YAML, body, signal, query: { fieldManager: MANAGER, fieldValidation: 'Strict', dryRun: dry ? 'All' : undefined } }),
      done: async (response, warned) => {
        yaml = await response.text();
        end();
        replace(banner, note('good', 'Written.'), warned);
      },
      cancel: end,
    });
  });
  remove.addEventListener('click', async () => {
    const dialog = h('dialog', { 'aria-labelledby': 'delete-title' }, h('h2', { id: 'delete-title' }, `Delete ${asked.name}?`),
      h('p', {}, `The ${kind.kind}${asked.namespace ? ` in namespace ${asked.namespace}` : ''} and what it owns will be deleted. This cannot be undone.`),
      h('form', { method: 'dialog', class: 'actions' }, h('button', { value: 'no', autofocus: true }, 'Keep'), h('button', { value: 'yes', class: 'danger' }, 'Delete')));
    document.body.append(dialog);
    const answer = await ask(dialog);
    dialog.remove();
    if (answer !== 'yes') return;
    try {
      // The object that was looked at, not another of its name.
      const uid = /^ {2}uid: "?([0-9a-f-]+)"?$/m.exec(yaml)?.[1];
      await request(path, { method: 'DELETE', type: 'application/json', signal,
        body: JSON.stringify({ kind: 'DeleteOptions', apiVersion: 'v1', propagationPolicy: 'Background', preconditions: uid && { uid } }) });
      replace(banner, note('warn', 'Deleted, or being deleted.'));
    } catch (error) {
      replace(banner, refusal(error));
    }
  });
  draw();
  if (!kind.verbs.includes('watch')) return;
  const listAt = listPath(kind, asked.namespace);
  const fieldSelector = `metadata.name=${asked.name}`;
  const watch = async () => {
    const list = await get(listAt, { query: { fieldSelector, limit: 1, pretty: 'false' }, signal });
    follow(listAt, {
      query: { fieldSelector }, from: list.metadata.resourceVersion, signal, state: setLive, gone: watch,
      take: async ({ type }) => {
        if (type === 'DELETED') {
          change.disabled = true;
          remove.disabled = true;
          replace(banner, note('warn', 'This object has been deleted. What is shown is its last state.'));
          return;
        }
        if (busy) {
          replace(banner, note('warn', 'The object has been changed on the server since it was opened here.'));
          return;
        }
        try {
          await read();
          draw();
        } catch {
          // It went again; the watch says so.
        }
      },
    });
  };
  await watch().catch(() => {});
}

export async function showNew(main, signal, setLive, asked, query) {
  const kind = await kindOf(asked);
  const place = h('div');
  main.append(heading(`New ${kind.kind}`, { crumbs: back(kind) }), place);
  const namespace = query.get('namespace') || 'default';
  const initial = [`apiVersion: ${kind.group ? `${kind.group}/` : ''}${kind.version}`, `kind: ${kind.kind}`, 'metadata:', '  name: ', ...(kind.namespaced ? [`  namespace: ${namespace}`] : []), ''].join('\n');
  edit({
    place, initial, before: async () => '',
    send: (body, dry) => {
      const stated = NAMESPACE.exec(body)?.[1] ?? namespace;
      return request(listPath(kind, kind.namespaced ? stated : ''), { method: 'POST', type: YAML, accept: YAML, body, signal, query: { fieldManager: MANAGER, fieldValidation: 'Strict', dryRun: dry ? 'All' : undefined } });
    },
    done: async (response) => {
      const made = await response.text();
      const name = /^ {2}name: +["']?([^"'\s]+)["']?\s*$/m.exec(made)?.[1];
      location.hash = name ? address(kind, kind.namespaced ? NAMESPACE.exec(made)?.[1] ?? namespace : '-', name) : address(kind);
    },
    cancel: () => { location.hash = address(kind); },
  });
}
