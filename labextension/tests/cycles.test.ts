import { strict as assert } from 'node:assert';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { test } from 'node:test';

/** The compiled tests are in tests/lib/tests. */
const SOURCES = join(__dirname, '../../../src');

/** Return the modules that each module imports, also those of which it imports only types. */
function importsByModule(): Map<string, string[]> {
  const files = readdirSync(SOURCES, { recursive: true, encoding: 'utf-8' }).filter(path =>
    path.endsWith('.ts')
  );
  return new Map(
    files.map(path => {
      const text = readFileSync(join(SOURCES, path), 'utf-8');
      const paths = [...text.matchAll(/(?:from|import\() ?'(\.[^']+)'/g)].map(([, found = '']) => found);
      return [
        path.slice(0, -'.ts'.length),
        paths.map(found => normalize(join(dirname(path), found))).filter(found => !found.startsWith('..'))
      ];
    })
  );
}

test('no module of the labextension imports itself through other modules', () => {
  const imports = importsByModule();
  const done = new Set<string>();
  const cycles: string[] = [];
  const visit = (module: string, path: readonly string[]): void => {
    if (path.includes(module)) {
      cycles.push([...path.slice(path.indexOf(module)), module].join(' → '));
    } else if (!done.has(module)) {
      imports.get(module)?.forEach(each => {
        visit(each, [...path, module]);
      });
      done.add(module);
    }
  };
  [...imports.keys()].forEach(module => {
    visit(module, []);
  });

  assert.ok(imports.size > 100, relative('.', SOURCES));
  assert.deepEqual(cycles, []);
});
