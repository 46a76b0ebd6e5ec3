// Merged into the configuration of JupyterLab's builder. By default, module ids are hashes of names, some of which
// contain the path of the sources. Numbers in order of use make the build the same in every folder.
module.exports = { optimization: { moduleIds: 'natural' } };
