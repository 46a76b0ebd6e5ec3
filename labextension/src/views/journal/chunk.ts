/** What is loaded after the start of the page: the runs of the journal, with their style sheet. */

import '../../../../style/journal.css';

export { showJournal } from './showJournal';
