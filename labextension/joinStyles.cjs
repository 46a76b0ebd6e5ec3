/**
 * A loader for the style sheet that imports the others, and for uPlot's: it replaces each import by the imported file,
 * because each further style sheet would make the bundle larger. uPlot's sheet stays a module of its own, from which
 * the builder knows that uPlot's license applies. Its rules for legends and titles are left out: this extension has its
 * own.
 */
const { readFileSync } = require('fs');
const { resolve } = require('path');

const UNUSED = /\.u-(?:title|legend|inline|series)[^{}]*\{[^{}]*\}/g;

module.exports = function (source) {
  return source
    .replace(UNUSED, '')
    .replace(/^@import url\('~.*'\);$/gm, '')
    .replace(/^@import url\('(.*)'\);$/gm, (_, name) => {
      const path = resolve(this.context, name);
      this.addDependency(path);
      return readFileSync(path, 'utf8');
    });
};
