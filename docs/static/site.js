// A page opened as a file may not read its neighbours, so search then shows titles alone instead of failing at each excerpt.
if (location.protocol === 'file:') DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
