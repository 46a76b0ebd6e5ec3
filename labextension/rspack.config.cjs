/** Additions to JupyterLab's configuration of the bundler. */
const { SwcJsMinimizerRspackPlugin } = require('@rspack/core');

module.exports = {
  // By default, ids of modules are hashes of names, some of which contain the path of the sources. Numbers in order
  // of use make the build the same in every folder.
  optimization: {
    moduleIds: 'natural',
    // More passes than by default make the scripts smaller.
    minimizer: [
      new SwcJsMinimizerRspackPlugin({
        minimizerOptions: { compress: { passes: 4 }, format: { comments: false } }
      })
    ]
  },
  // Style sheets are minified, like the scripts.
  module: {
    rules: [
      { test: /\.css$/, enforce: 'pre', loader: 'builtin:lightningcss-loader', options: { minify: true } }
    ]
  }
};
