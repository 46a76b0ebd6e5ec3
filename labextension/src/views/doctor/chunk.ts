/** What is loaded when the doctor's section in the panel is opened: the script and the style sheet of its contents. */

import '../../../../style/doctorReport.css';

export { DoctorReport } from './doctorReport';
