/** Additions to JupyterLab's configuration of the bundler. */
const { SwcJsMinimizerRspackPlugin } = require('@rspack/core');

/** Return the settings schema without its texts: the scripts need only types, limits and defaults. */
const withoutTexts = value =>
  Array.isArray(value) || typeof value !== 'object'
    ? value
    : Object.fromEntries(
        Object.entries(value)
          .filter(([key]) => key !== 'title' && key !== 'description' && !key.startsWith('jupyter.lab.'))
          .map(([key, inner]) => [key, withoutTexts(inner)])
      );

module.exports = {
  performance: { hints: false },
  // By default, ids of modules are hashes of names, some of which contain the path of the sources. Numbers in order
  // of use make the build the same in every folder.
  optimization: {
    moduleIds: 'natural',
    // All of the extension is loaded at once, and one file is compressed better than several.
    splitChunks: false,
    // More passes than by default make the scripts smaller.
    minimizer: [
      new SwcJsMinimizerRspackPlugin({
        minimizerOptions: {
          compress: { passes: 4, keep_fargs: false },
          format: { comments: false }
        }
      })
    ]
  },
  module: {
    rules: [
      // Style sheets are minified, like the scripts.
      { test: /\.css$/, enforce: 'pre', loader: 'builtin:lightningcss-loader', options: { minify: true } },
      { test: /uPlot\.esm\.js$/, loader: require.resolve('./trimUplot.cjs') },
      { test: /panel\.json$/, type: 'json', parser: { parse: text => withoutTexts(JSON.parse(text)) } }
    ]
  }
};
