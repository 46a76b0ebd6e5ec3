// The order of search results: the pages for users, the pages for developers, names of the API that contain the word.
var Scorer = {
  score: ([page, _title, _anchor, _description, score]) =>
    /^(docs\/developers\/|[A-Z_]+$|notebooks\/)/.test(page) ? score - 8 : score,
  objNameMatch: 11,
  objPartialMatch: 1,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2
};
