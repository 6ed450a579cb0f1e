// How search ranks what it finds: Sphinx's own numbers, but pages come a little earlier, and last comes whatever is only a parameter: a
// C function's, or a section of TypeDoc's, which gives one to every parameter and property.
var Scorer = {
  score: ([page, , anchor, description, score]) => {
    const typedoc = page.startsWith('api/javascript/');
    if (!anchor) return typedoc ? score : score + 5;
    const parameter = description ? /parameter/.test(description) : typedoc;
    return parameter ? score - 100 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
