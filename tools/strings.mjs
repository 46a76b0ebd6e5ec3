// Prints the labextension's translatable strings as JSON: all texts that are passed to methods of `trans`.
// Run by tools/translation.py.

import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';

const ROOT = join(import.meta.dirname, '..');
const SOURCES = join(ROOT, 'labextension', 'src');
/** The methods of `trans`, and how many of the first arguments of each are texts. */
const METHODS = { __: 1, _n: 2, _p: 2, _np: 3 };

const found = [];
for (const path of readdirSync(SOURCES, { recursive: true }).filter(name => name.endsWith('.ts')).sort()) {
  const full = join(SOURCES, path);
  const source = ts.createSourceFile(full, readFileSync(full, 'utf8'), ts.ScriptTarget.Latest, true);
  visit(source, source);
}
process.stdout.write(JSON.stringify(found));

function visit(source, node) {
  if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
    const method = node.expression.name.text;
    if (Object.hasOwn(METHODS, method)) {
      const line = source.getLineAndCharacterOfPosition(node.getStart()).line + 1;
      const texts = node.arguments.slice(0, METHODS[method]).map(text);
      const argument = (node.arguments[texts.indexOf(null)] ?? node.arguments[0]).getText();
      found.push({ method, texts, argument, path: relative(ROOT, source.fileName), line });
    }
  }
  ts.forEachChild(node, child => visit(source, child));
}

/** Return an argument's text; null for an expression that is not a literal. */
function text(node) {
  if (ts.isStringLiteralLike(node)) {
    return node.text;
  }
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.PlusToken) {
    const [left, right] = [text(node.left), text(node.right)];
    return left === null || right === null ? null : left + right;
  }
  return null;
}
