/**
 * A loader for the style sheet that imports the others: it replaces each import by the imported file, because each
 * further style sheet would make the bundle larger. uPlot's rules for legends and titles are left out: this extension
 * has its own.
 */
const { readFileSync } = require('fs');
const { resolve } = require('path');

const UNUSED = /\.u-(?:title|legend|inline|series)[^{}]*\{[^{}]*\}/g;

module.exports = function (source) {
  return source.replace(/^@import url\('(~?)(.*)'\);$/gm, (_, isPackage, name) => {
    const path = isPackage ? require.resolve(name) : resolve(this.context, name);
    this.addDependency(path);
    return readFileSync(path, 'utf8').replace(UNUSED, '');
  });
};
