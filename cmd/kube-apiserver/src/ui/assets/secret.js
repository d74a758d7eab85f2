// Hides the values of a Secret in its YAML, a line at a time: as many lines as before, so that changes stay where they are.

const HIDDEN = '••••••';
const APPLIED = /^ +["']?kubectl\.kubernetes\.io\/last-applied-configuration["']?:/;
const ENTRY = /^ +["']?[-._a-zA-Z0-9]+["']?:/;
const VALUES = /^["']?(data|stringData)["']?:/;

export const isSecretKind = ({ group, resource }) => group === '' && resource === 'secrets';

const indentOf = (line) => line.length - line.trimStart().length;

export function masked(text) {
  let inValues = false;
  let first;
  // The indent of the entry whose value goes on below it.
  let below = -1;
  return text.split('\n').map((line) => {
    const indent = indentOf(line);
    if (line.startsWith('#')) return line;
    if (line.trim() && indent === 0) {
      const found = VALUES.exec(line);
      [inValues, first, below] = [Boolean(found), undefined, -1];
      if (!found) return line;
      const rest = line.slice(found[0].length).trim();
      return !rest || rest === '{}' || rest === 'null' ? line : `${found[0]} ${HIDDEN}`;
    }
    if (inValues) {
      first ??= line.trim() ? indent : undefined;
      const entry = indent === first && ENTRY.exec(line);
      return entry ? `${entry[0]} ${HIDDEN}` : line.trim() ? `${' '.repeat(indent)}${HIDDEN}` : line;
    }
    if (below >= 0 && (!line.trim() || indent > below)) return line.trim() ? `${' '.repeat(indent)}${HIDDEN}` : line;
    below = -1;
    const applied = APPLIED.exec(line);
    if (!applied) return line;
    below = indent;
    return `${applied[0]} ${HIDDEN}`;
  }).join('\n');
}
