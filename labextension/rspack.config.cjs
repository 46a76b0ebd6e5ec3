/** Additions to JupyterLab's configuration of the bundler. */
module.exports = {
  // By default, ids of modules are hashes of names, some of which contain the path of the sources. Numbers in order
  // of use make the build the same in every folder.
  optimization: { moduleIds: 'natural' },
  // Style sheets are minified, like the scripts.
  module: {
    rules: [
      { test: /\.css$/, enforce: 'pre', loader: 'builtin:lightningcss-loader', options: { minify: true } }
    ]
  }
};
