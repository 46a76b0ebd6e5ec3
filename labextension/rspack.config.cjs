/** Additions to JupyterLab's configuration of the bundler. */
const { SwcJsMinimizerRspackPlugin } = require('@rspack/core');

/** Return the schema of the settings without the texts that only the settings editor shows. */
function withoutTexts(text) {
  const without = (schema, names) =>
    JSON.parse(schema, (key, value) => (names.test(key) ? undefined : value));
  const schema = without(text, /^jupyter|^description$|^additionalProperties$/);
  const { show } = schema.properties;
  const bare = without(JSON.stringify(schema), /^title$/);
  return { ...bare, properties: { ...bare.properties, show } };
}

module.exports = {
  performance: { hints: false },
  // By default, ids of modules are hashes of names, some of which contain the path of the sources. Numbers in order
  // of use make the build the same in every folder.
  optimization: {
    moduleIds: 'natural',
    // The only files are what is loaded at the start, and a file for each import(), because one file is compressed better
    // than several.
    splitChunks: false,
    // More passes than by default make the scripts smaller.
    minimizer: [
      new SwcJsMinimizerRspackPlugin({
        minimizerOptions: {
          compress: { passes: 4, keep_fargs: false, ecma: 2020, module: true, pure_getters: true },
          format: { comments: false }
        }
      })
    ]
  },
  // Style sheets are minified, like the scripts.
  module: {
    rules: [
      // The scripts need the settings' defaults and limits, and the titles of the panel's parts. The server sends the
      // rest of their schema.
      { test: /schema\/panel\.json$/, type: 'json', parser: { parse: text => withoutTexts(text) } },
      { test: /\.css$/, enforce: 'pre', loader: 'builtin:lightningcss-loader', options: { minify: true } },
      {
        test: /(?:style\/index|uPlot\.min)\.css$/,
        enforce: 'pre',
        loader: require.resolve('./joinStyles.cjs')
      },
      { test: /uPlot\.esm\.js$/, loader: require.resolve('./trimUplot.cjs') }
    ]
  }
};
