/**
 * A loader for uPlot's module: it removes what uPlot offers to its users and this extension doesn't use, so that the
 * bundler leaves it out, and mends a fault. Each entry is a pattern, how often it occurs, and its replacement.
 */
const CHANGES = [
  // what uPlot offers to other modules, such as bars and splines
  [/^\t?\(?uPlot\.(?:addGap|assign|clipGaps|fmtDate|fmtNum|join|orient|range\w+|tzDate) *=.*$/gm, 11, ''],
  [/^\t\(?paths\.(?:stepped|bars|spline) *=.*$/gm, 3, ''],
  // the legend, also at a pointer
  [/(?<=const showLegend = )legend\.show/g, 1, 'false'],
  [/\blegend\.live\b/g, 7, 'false'],
  // scales that are not linear
  [/\b(?:\w+\.)?distr *(?:== *(?:2|3|4|100)|>= 3)\b/g, 31, 'false'],
  // series with x values of their own
  [/\bmode == 2\b/g, 16, 'false'],
  [/\bmode == 1\b/g, 16, 'true'],
  // dates as text, and times in milliseconds
  [/^\tconst (?:_fmtDate|_timeAxisVals|_timeSeriesVal) .*$/gm, 3, ''],
  [/isTime \? \(isStr\(sv\).*_timeSeriesVal\) : /g, 1, ''],
  [/isTime \? \(\n[^]*?_timeAxisVals\n\t*\) : /g, 1, ''],
  [/^const \[ timeIncrsMs.*$/gm, 1, ''],
  [/(?<=timeIncrsS,).*(?=timeAxisSplitsS)/g, 1, ''],
  [/^\t\t_timeAxisStamps,$/gm, 1, ''],
  [/\bms == 1\b/g, 4, 'false'],
  // uPlot could not be imported if the browser's language isn't a valid tag, such as en-US@posix. uPlot's repository has
  // the same change (leeoniya/uPlot#1054), but 1.6.32 does not.
  [/(?<=new Intl\.NumberFormat)\(domEnv \? nav\.language : 'en-US'\)/g, 1, '()']
];

module.exports = source => {
  for (const [pattern, count, replacement] of CHANGES) {
    if (source.match(pattern)?.length !== count) {
      throw new Error(`uPlot has changed: adapt ${String(pattern)} in trimUplot.cjs.`);
    }
    source = source.replace(pattern, replacement);
  }
  return source;
};
