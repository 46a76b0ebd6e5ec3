/** What is loaded when a dashboard is opened: its scripts and its style sheet. */

import '../../../../style/dashboard.css';

export { GpuDashboard } from './gpuDashboard';
