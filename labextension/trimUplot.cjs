/**
 * A loader for uPlot's module: it removes what uPlot offers to its users and this extension doesn't use, such as
 * bars and splines, so that the bundler leaves them out.
 */
const OFFERED = /^\t\(?(?:uPlot\.(?:addGap|clipGaps|fmtDate|tzDate)|paths\.(?:stepped|bars|spline)) *=.*$/gm;

module.exports = source => {
  if (source.match(OFFERED)?.length !== 7) {
    throw new Error('uPlot has changed: adapt trimUplot.cjs.');
  }
  return source.replace(OFFERED, '');
};
