// How search ranks what it finds: Sphinx's own numbers, but pages come a little earlier, those first that have a word of the question in
// their own title (Sphinx counts the titles of sections as the page's), and last comes whatever is only a parameter: a C function's, or a
// section of TypeDoc's, which gives one to every parameter and property.
var Scorer = {
  asked: (new URLSearchParams(location.search).get('q') ?? '').toLowerCase().split(/\s+/).filter((word) => word.length > 2),
  score: ([page, title, anchor, description, score]) => {
    const typedoc = page.startsWith('api/javascript/');
    if (!anchor && !typedoc) return score + (Scorer.asked.some((word) => title.toLowerCase().includes(word)) ? 8 : 5);
    if (!anchor) return score;
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
