/**
 * A loader for the style sheet that imports the others: it replaces each import by the imported file, so that the
 * bundle has one style sheet. Each style sheet has a cost of 60 bytes.
 */
const { readFileSync } = require('fs');
const { resolve } = require('path');

module.exports = function (source) {
  return source.replace(/^@import url\('(~?)(.*)'\);$/gm, (_, isPackage, name) => {
    const path = isPackage ? require.resolve(name) : resolve(this.context, name);
    this.addDependency(path);
    return readFileSync(path, 'utf8');
  });
};
