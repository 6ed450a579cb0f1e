// A page opened as a file may not read its neighbours, so search then shows titles alone instead of failing at each excerpt.
if (location.protocol === 'file:') DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// What scrolls sideways can be reached, and scrolled, by keys.
addEventListener('DOMContentLoaded', () => {
  for (const part of document.querySelectorAll('.content pre, .content table, .content .table-wrapper')) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
});
