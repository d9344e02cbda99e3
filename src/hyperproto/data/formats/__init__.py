"""File formats that several data sets share: tables, .npz arrays, images, tagged text and relations."""
