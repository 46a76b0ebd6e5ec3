/** What is loaded when the wall or the cluster's section in the panel is opened: their scripts and style sheets. */

import '../../../../style/dashboard.css';
import '../../../../style/cluster.css';

export { ClusterOverview } from './clusterOverview';
export { ClusterWall } from './clusterWall';
